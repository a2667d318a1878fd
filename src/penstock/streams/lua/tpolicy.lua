-- uses: common groups retention
-- TPOLICY: set how long a stream keeps what, and answer it.
--
-- KEYS[1..8]  the stream and its side keys (common.lua)
-- ARGV        options and values in turn
-- Reply       all options and their values in turn

local function parse_value(option, value)
  local name, _, low, high = unpack(option)
  if low == 'choice' then
    value = value:lower()
    if value ~= 'yes' and value ~= 'no' then common.fail('ERR ' .. name:upper() .. ' must be yes or no') end
    return value
  end
  local number = common.whole(value)
  if high and (number < low or number > high) then
    common.fail('ERR ' .. name:upper() .. ' must be from ' .. low .. ' to ' .. high)
  end
  return number
end

local function option_called(word)
  for _, option in ipairs(retention.OPTIONS) do
    if option[1] == word:lower() then return option end
  end
  common.fail("ERR unknown option '" .. word .. "' of TPOLICY")
end

local function parse()
  if #ARGV % 2 == 1 then common.syntax_error() end
  local changes = {}
  for place = 1, #ARGV, 2 do
    local option = option_called(ARGV[place])
    changes[option[1]] = parse_value(option, ARGV[place + 1])
  end
  return changes
end

local function change(self, changes)
  common.ensure(self)
  self.policy = self.policy or {}
  for name, value in pairs(changes) do self.policy[name] = value end
  redis.call('HSET', self.meta, 'policy', cmsgpack.pack(self.policy))
  retention.apply(self, common.now_ms())
  common.save(self)
end

return common.run(function()
  local changes = parse()
  local self = common.open(0)
  if #ARGV > 0 then
    change(self, changes)
  elseif not self.token then
    common.fail('ERR no such key')
  end
  local reply = {}
  for _, option in ipairs(retention.OPTIONS) do
    reply[#reply + 1] = option[1]
    reply[#reply + 1] = retention.value(self, option[1])
  end
  return reply
end)
