-- Drafts and versions of one pipeline, and which version is active: every change of them in one piece.
--
-- KEYS[1]  the pipeline's home `{pipelines}.pipelineH:<name>`; for the verb `head` its head in a partition
-- KEYS[2]  `{pipelines}.names`, the set of all names (not for `head`)
-- ARGV[1]  verb   ARGV[2]  name of the pipeline
-- ARGV[3…] by verb:
--   draft <definition>                         keeps a draft in place of the one before
--   discard                                    drops the draft
--   commit <version> <definition> <info> <line> <draft> <1: activate> <most versions>
--                                              the draft, if one is given, must still be this, and goes
--   activate <version>       deactivate
--   retire <version>         first half of a removal: it may not be started any more, but still be read
--   keep <version>           takes that back           remove <version>   second half
--   spread <revision> <partitions>             notes that all heads have this revision
--   snapshot                 show              only read
--   head <revision> <active line or ''> [<version> <line>] …
-- Reply    `head`: 1 changed, 0 it was right, or follows a newer revision. `show`: draft, active, then version and info in turn.
--          The others: a word, revision, `<revision> <partitions>` last spread, active version, then version and
--          line of each that may be started. The word is ok, same (nothing was written), changed (the draft is
--          another one), missing, active or full.
--
-- A home has the fields
--   draft          canonical JSON
--   active         version that is started
--   order          versions with spaces between, oldest first
--   v:<version>    canonical JSON              i:<version>   JSON: by, comment, committed_ms
--   h:<version>    line of the heads: `<group> <deadline_ms> <priority> <1 startable>`
--   gone:<version> it is being removed
--   revision       grows with each change that heads must follow; spread: see the reply
-- A head has `active` (`<version> <line>`), `v:<version>` (`<line>`) and `revision`. Others may add fields.

local home, verb, name = KEYS[1], ARGV[1], ARGV[2]

-- Processes that keep pipelines look again. A server that forbids PUBLISH must not fail what was done.
local function tell()
  redis.pcall('PUBLISH', 'tx.pipelines', name)
end

local function get(field)
  return redis.call('HGET', home, field) or ''
end

local function has(field)
  return redis.call('HEXISTS', home, field) == 1
end

local function versions()
  local found = {}
  for version in string.gmatch(get('order'), '%S+') do found[#found + 1] = version end
  return found
end

local function snapshot(word)
  local reply = {word, get('revision'), get('spread'), get('active')}
  for _, version in ipairs(versions()) do
    if not has('gone:' .. version) then
      reply[#reply + 1] = version
      reply[#reply + 1] = get('h:' .. version)
    end
  end
  return reply
end

-- By time, so that a home that was lost and made again is above what its heads remember; by count, so that a clock
-- that was set back changes nothing.
local function changed()
  local time = redis.call('TIME')
  local before = tonumber(get('revision')) or 0
  local revision = math.max(before + 1, time[1] * 1000000 + time[2])
  redis.call('HSET', home, 'revision', string.format('%.0f', revision))
  tell()
  return snapshot('ok')
end

local function forget_if_empty()
  if not has('draft') and get('order') == '' then redis.call('SREM', KEYS[2], name) end
end

-- A version that nobody has yet.
local function add(version, definition, info, line)
  local time = redis.call('TIME')
  local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  local order = get('order')
  redis.call('HSET', home, 'v:' .. version, definition, 'h:' .. version, line,
    'i:' .. version, '{"committed_ms":' .. now .. ',' .. info,
    'order', order == '' and version or order .. ' ' .. version)
  redis.call('SADD', KEYS[2], name)
end

local VERBS = {}

function VERBS.draft(definition)
  if get('draft') == definition then return snapshot('same') end
  redis.call('HSET', home, 'draft', definition)
  redis.call('SADD', KEYS[2], name)
  tell()
  return snapshot('ok')
end

function VERBS.discard()
  if redis.call('HDEL', home, 'draft') == 0 then return snapshot('missing') end
  forget_if_empty()
  tell()
  return snapshot('ok')
end

function VERBS.commit(version, definition, info, line, draft, is_active, most)
  if draft ~= '' and get('draft') ~= draft then return snapshot('changed') end
  local is_known = has('v:' .. version)
  if not is_known and #versions() >= tonumber(most) then return snapshot('full') end
  if draft ~= '' then redis.call('HDEL', home, 'draft') end
  local is_same = is_known and redis.call('HDEL', home, 'gone:' .. version) == 0
  if not is_known then add(version, definition, info, line) end
  if is_active == '1' and get('active') ~= version then
    redis.call('HSET', home, 'active', version)
    is_same = false
  end
  if not is_same then return changed() end
  if draft ~= '' then tell() end
  return snapshot('same')
end

function VERBS.activate(version)
  if not has('v:' .. version) then return snapshot('missing') end
  local was_gone = redis.call('HDEL', home, 'gone:' .. version) == 1
  if not was_gone and get('active') == version then return snapshot('same') end
  redis.call('HSET', home, 'active', version)
  return changed()
end

function VERBS.deactivate()
  if redis.call('HDEL', home, 'active') == 0 then return snapshot('same') end
  return changed()
end

function VERBS.retire(version)
  if not has('v:' .. version) then return snapshot('missing') end
  if get('active') == version then return snapshot('active') end
  if redis.call('HSET', home, 'gone:' .. version, '1') == 0 then return snapshot('same') end
  return changed()
end

function VERBS.keep(version)
  if redis.call('HDEL', home, 'gone:' .. version) == 0 then return snapshot('same') end
  return changed()
end

function VERBS.remove(version)
  -- Somebody may have committed or activated it again since it was retired.
  if not has('gone:' .. version) then return snapshot('active') end
  local left = {}
  for _, other in ipairs(versions()) do
    if other ~= version then left[#left + 1] = other end
  end
  redis.call('HDEL', home, 'v:' .. version, 'i:' .. version, 'h:' .. version, 'gone:' .. version)
  redis.call('HSET', home, 'order', table.concat(left, ' '))
  forget_if_empty()
  tell()
  return snapshot('ok')
end

function VERBS.spread(revision, partitions)
  local text = revision .. ' ' .. partitions
  if get('revision') == revision and get('spread') ~= text then redis.call('HSET', home, 'spread', text) end
  tell()
  return snapshot('ok')
end

function VERBS.snapshot()
  return snapshot('ok')
end

function VERBS.show()
  local reply = {get('draft'), get('active')}
  for _, version in ipairs(versions()) do
    reply[#reply + 1] = version
    reply[#reply + 1] = get('i:' .. version)
  end
  return reply
end

-- Makes a head what the home was at a revision. What is right already is not written again.
function VERBS.head(revision, active)
  if (tonumber(get('revision')) or 0) > tonumber(revision) then return 0 end
  local wanted = {revision = revision}
  if active ~= '' then wanted.active = active end
  for at = 5, #ARGV, 2 do wanted['v:' .. ARGV[at]] = ARGV[at + 1] end
  local is_changed = 0
  for _, field in ipairs(redis.call('HKEYS', home)) do
    local is_ours = field == 'active' or string.sub(field, 1, 2) == 'v:'
    if is_ours and not wanted[field] then is_changed = redis.call('HDEL', home, field) end
  end
  for field, value in pairs(wanted) do
    if get(field) ~= value then
      redis.call('HSET', home, field, value)
      is_changed = 1
    end
  end
  return is_changed
end

return VERBS[verb](unpack(ARGV, 3, 9))
