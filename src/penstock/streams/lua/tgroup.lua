-- uses: common groups retention
-- TGROUP: make, change, remove and list groups.
--
-- KEYS[1..8]  the stream and its side keys (common.lua); KEYS[9..16] those of the dead-letter stream that an
--             option names, so that a cluster refuses one of another slot
-- ARGV[1]     CREATE, SET, DESTROY or LIST, in capitals
-- ARGV[2…]    what follows the key in the command
-- Reply       1 or 0; LIST: the names

-- Options by the names of a group's fields.
local OPTIONS = {
  MAXPENDING = 'maxpending', TTL = 'ttl', ORDERED = 'ordered', MAXDELIVERIES = 'maxdeliveries',
  BACKOFF = 'backoff', DEADLETTER = 'deadletter',
}

local MOST_DELAYS = 1000

local function parse_value(name, value)
  if name == 'ORDERED' then
    value = value:lower()
    if value ~= 'yes' and value ~= 'no' then common.syntax_error() end
    return value
  elseif name == 'BACKOFF' then
    local count = 0
    for word in (value .. ','):gmatch('([^,]*),') do
      count = count + 1
      if value ~= '' then common.whole(count <= MOST_DELAYS and word or 'too many') end
    end
    return value
  elseif name == 'DEADLETTER' then
    return value
  end
  return common.whole(value)
end

-- Options from ARGV[place] on, by field.
local function parse(place, may_move)
  local options, start = {}, nil
  while place <= #ARGV do
    local name, value = ARGV[place]:upper(), ARGV[place + 1]
    if not value then common.syntax_error() end
    if name == 'OFFSET' and may_move then
      start = common.start(value)
    elseif OPTIONS[name] then
      options[OPTIONS[name]] = parse_value(name, value)
    else
      common.syntax_error()
    end
    place = place + 2
  end
  return options, start
end

local function apply(self, group, options)
  if options.ordered then groups.set_ordered(self, group, options.ordered) end
  for name, value in pairs(options) do group[name] = value end
end

local function create(name, now)
  if name == '' then common.fail('ERR the name of a group cannot be empty') end
  local start, options = common.start(ARGV[3]), parse(4, false)
  local self = common.open(0)
  if groups.load(self, name, now) then return 0 end
  local group = groups.new(self, name, start, now)
  apply(self, group, options)
  groups.save_all(self, group)
  return 1
end

local function set(name, now)
  local options, start = parse(3, true)
  local self = common.open(0)
  local group = groups.load(self, name, now)
  if not group then return 0 end
  apply(self, group, options)
  if start then
    groups.forget_parked(self, group)
    group.cursor = groups.resolve(self, start)
  end
  group.active = now
  groups.save_all(self, group)
  return 1
end

local function destroy(name, now)
  local self = common.open(0)
  local group = groups.load(self, name, now)
  if not group then return 0 end
  groups.destroy(self, group)
  return 1
end

local function list(_, now)
  local names = {}
  for place, group in ipairs(groups.all(common.open(0), now)) do names[place] = group.name end
  return names
end

local ACTIONS = {CREATE = create, SET = set, DESTROY = destroy, LIST = list}

return common.run(function()
  return ACTIONS[ARGV[1]](ARGV[2], common.now_ms())
end)
