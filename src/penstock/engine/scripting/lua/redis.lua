-- The redis table: commands, replies, log.
--
-- Chunk argument:  kit      see kit.lua; guard.lua has run
-- Uses, of kit.host:
--   call(word, …)           execute a command; answers as tabulated below
--   call_packed(words, sizes)   the same, all words in one string, their sizes in another
--   set_protocol(version)   what replies of later commands look like
--   sha1hex(text), log(level, text)
-- Leaves in it:
--   kit.libraries.redis
--   kit.build(tokens, i)    the value that the tokens from i on describe
--
-- What a host call answers (convert.py makes it):
--
--   value                            a string, a number, false or nil
--   text,   1                        a status
--   text,   2                        an error
--   false,  3, value, …              an array of such values
--   false,  4, token, …              anything else, as tokens
--   tokens, 5                        the same, already a table; not as array
--   array,  6                        an array, already a table
--   false,  7                        the script must end
--   false,  8                        no memory for the reply
--
-- Tokens, in prefix order: a string, number, false, or `true` followed by one of
--
--   1, n, value × n      array          6, number          double
--   2, text              status         7 / 8              true / false
--   3, text              error          9                  nil
--   4, n, (key, value)×n map            10, format, text   verbatim string
--   5, n, value × n      set            11, text           big number
--   12, n, scalar × n    array of strings, numbers and false alone (to the host only)

local kit = ...
local concat, error, find, floor, format = table.concat, error, string.find, math.floor, string.format
local match, select, tonumber, tostring, type, unpack = string.match, select, tonumber, tostring, type, unpack
local host, state, abort = kit.host, kit.state, kit.abort
local host_call, host_call_packed = host.call, host.call_packed

-- The host takes arguments one by one at a price that grows with the square of their number;
-- from about 350 on packing them is cheaper.
local MAX_SEPARATE_WORDS = 256

------------------------------------------------------------------------------------- replies

local build

local function build_map(tokens, i)
  local map = {}
  local count = tokens[i]
  i = i + 1
  for _ = 1, count do
    local key, value
    key, i = build(tokens, i)
    value, i = build(tokens, i)
    if key ~= nil then
      map[key] = value
    end
  end
  return { map = map }, i
end

local function build_set(tokens, i)
  local set = {}
  local count = tokens[i]
  i = i + 1
  for _ = 1, count do
    local member
    member, i = build(tokens, i)
    if member ~= nil then
      set[member] = true
    end
  end
  return { set = set }, i
end

local BUILDERS = {
  function(tokens, i)
    local array = {}
    local count = tokens[i]
    i = i + 1
    for k = 1, count do
      array[k], i = build(tokens, i)
    end
    return array, i
  end,
  function(tokens, i) return { ok = tokens[i] }, i + 1 end,
  function(tokens, i) return { err = tokens[i] }, i + 1 end,
  build_map,
  build_set,
  function(tokens, i) return { double = tokens[i] }, i + 1 end,
  function(_, i) return true, i end,
  function(_, i) return false, i end,
  function(_, i) return nil, i end,
  function(tokens, i) return { verbatim_string = { format = tokens[i], string = tokens[i + 1] } }, i + 2 end,
  function(tokens, i) return { big_number = tokens[i] }, i + 1 end,
}

function build(tokens, i)
  local token = tokens[i]
  if token ~= true then
    return token, i + 1
  end
  return BUILDERS[tokens[i + 1]](tokens, i + 2)
end
kit.build = build

local function other_reply(first, tag, ...)
  if tag == 3 then
    return { ... }
  elseif tag == 6 then
    return first
  elseif tag == 4 then
    return (build({ ... }, 1))
  elseif tag == 5 then
    return (build(first, 1))
  elseif tag == 7 then
    abort()
  end
  error('not enough memory', 0)
end

local function raise_reply(first, tag, ...)
  if tag == nil then
    return first
  elseif tag == 1 then
    return { ok = first }
  elseif tag == 2 then
    error({ err = first, ignore_error_stats_update = true }, 0)
  end
  return other_reply(first, tag, ...)
end

local function return_reply(first, tag, ...)
  if tag == nil then
    return first
  elseif tag == 1 then
    return { ok = first }
  elseif tag == 2 then
    return { err = first, ignore_error_stats_update = true }
  end
  return other_reply(first, tag, ...)
end

-------------------------------------------------------------------------------------- calls

local NO_WORDS = 'ERR Please specify at least one argument for this redis lib call'
local BAD_WORDS = 'ERR Lua redis lib command arguments must be strings or integers'

-- The words of a command as strings, and their number; or nothing and what is wrong.
local function words_of(...)
  local count = select('#', ...)
  if count == 0 then
    return nil, NO_WORDS
  end
  local words = { ... }
  for i = 1, count do
    local kind = type(words[i])
    if kind == 'number' then
      words[i] = format('%.17g', words[i])
    elseif kind ~= 'string' then
      return nil, BAD_WORDS
    end
  end
  return words, count
end

local function send(words, count)
  if count <= MAX_SEPARATE_WORDS then
    return host_call(unpack(words, 1, count))
  end
  local sizes = {}
  for i = 1, count do
    sizes[i] = #words[i]
  end
  return host_call_packed(concat(words), concat(sizes, ' '))
end

-- Whether there are one to six words, all strings: nothing has to be done to them then.
local function is_short(count, a, b, c, d, e, f)
  return count < 7 and type(a) == 'string' and (count < 2 or type(b) == 'string')
    and (count < 3 or type(c) == 'string') and (count < 4 or type(d) == 'string')
    and (count < 5 or type(e) == 'string') and (count < 6 or type(f) == 'string')
end

local function call(...)
  if is_short(select('#', ...), ...) then
    return raise_reply(host_call(...))
  end
  local words, count = words_of(...)
  if not words then
    error({ err = count }, 0)
  end
  return raise_reply(send(words, count))
end

local function pcall(...)
  if is_short(select('#', ...), ...) then
    return return_reply(host_call(...))
  end
  local words, count = words_of(...)
  if not words then
    return { err = count }
  end
  return return_reply(send(words, count))
end

----------------------------------------------------------------------------- everything else

local WRONG_ARGUMENTS = 'ERR wrong number or type of arguments'

local function single_string(...)
  local text = ...
  return select('#', ...) == 1 and type(text) == 'string' and text
end

local function error_reply(...)
  local text = single_string(...)
  if not text then
    return { err = WRONG_ARGUMENTS }
  end
  -- As a C string, without the line break it may end in. A leading dash marks a code; a
  -- single word gets the general code.
  text = match(text, '^%-?([^%z]*)')
  text = match(text, '^(.-)[\r\n]*$')
  if find(text, ' ', 1, true) then
    return { err = text }
  end
  return { err = 'ERR ' .. text }
end

local function status_reply(...)
  local text = single_string(...)
  if not text then
    return { err = WRONG_ARGUMENTS }
  end
  return { ok = text }
end

-- As C reads a number: strings of digits count, anything else is zero.
local function integer(v)
  local kind = type(v)
  local number = (kind == 'number' or kind == 'string') and tonumber(v) or 0
  return number < 0 and -floor(-number) or floor(number)
end

local function text_of(v)
  local kind = type(v)
  return kind == 'string' and v or kind == 'number' and tostring(v) or nil
end

local function sha1hex(...)
  if select('#', ...) ~= 1 then
    error({ err = 'ERR wrong number of arguments' }, 0)
  end
  return host.sha1hex(text_of(...) or '')
end

local function log(...)
  local count, level = select('#', ...), ...
  if count < 2 then
    error({ err = 'ERR redis.log() requires two arguments or more.' }, 0)
  elseif not text_of(level) or not tonumber(level) then
    error({ err = 'ERR First argument must be a number (log level).' }, 0)
  end
  level = integer(level)
  if level < 0 or level > 3 then
    error({ err = 'ERR Invalid debug level.' }, 0)
  end
  local texts = {}
  for i = 2, count do
    texts[#texts + 1] = text_of((select(i, ...)))
  end
  host.log(level, concat(texts, ' '))
end

local function setresp(...)
  if select('#', ...) ~= 1 then
    error({ err = 'ERR redis.setresp() requires one argument.' }, 0)
  end
  local version = integer(...)
  if version ~= 2 and version ~= 3 then
    error({ err = 'ERR RESP version must be 2 or 3.' }, 0)
  end
  state.resp = version
  host.set_protocol(version)
end

-- Nothing is replicated by this engine: flags are checked, as scripts may rely on that.
local function set_repl(...)
  if select('#', ...) ~= 1 then
    error({ err = 'ERR redis.set_repl() requires two arguments.' }, 0)
  end
  local flags = integer(...)
  if flags < 0 or flags > 3 then
    error({
      err = 'ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.',
    }, 0)
  end
end

local function acl_check_cmd(...)
  local words, problem = words_of(...)
  if not words then
    error({ err = problem }, 0)
  end
  return true
end

kit.libraries.redis = {
  call = call,
  pcall = pcall,
  error_reply = error_reply,
  status_reply = status_reply,
  sha1hex = sha1hex,
  log = log,
  setresp = setresp,
  set_repl = set_repl,
  replicate_commands = function() return true end,
  breakpoint = function() return false end,
  debug = function() end,
  acl_check_cmd = acl_check_cmd,
  LOG_DEBUG = 0,
  LOG_VERBOSE = 1,
  LOG_NOTICE = 2,
  LOG_WARNING = 3,
  REPL_NONE = 0,
  REPL_AOF = 1,
  REPL_SLAVE = 2,
  REPL_REPLICA = 2,
  REPL_ALL = 3,
  REDIS_VERSION = host.redis_version,
  REDIS_VERSION_NUM = host.redis_version_number,
}
