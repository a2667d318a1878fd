-- Runs scripts and turns what they return into something the host can read.
--
-- Chunk argument:  kit      see kit.lua; every other chunk has run
-- Answers four functions, for the host only:
--
--   compile(id, source) -> true, or false and what is wrong with the source
--   forget(id)             drop a compiled script; without an id, all
--   run(id, period, key_count, word, …)
--     Runs a compiled script with KEYS and ARGV made of the words (or of one table of them),
--     looked at every `period` instructions. Answers one of
--
--       0, value                   a string, number, boolean or nil
--       1, value, …                an array of strings, numbers and false (null)
--       2, token, …                anything else, in tokens as redis.lua has them
--       3, token, …                the same, and more() has further tokens
--       4, text                    a status
--       5, text                    an error that was returned
--      -1, text, source, line      an error that was raised
--      -2, exception               an exception of the host
--
--   more() -> token, …             the next tokens of an answer 3; none after the last
--
-- It is the last chunk and empties the interpreter's global table. Arrays end at their first
-- nil. Fields are read raw: no metamethod runs here, as the script is over.

local kit = ...
local getmetatable, next, rawget, select, type = getmetatable, next, rawget, select, type
local pcall, unpack, xpcall = pcall, unpack, xpcall
local globals, state, handler = kit.globals, kit.state, kit.handler
local compile, watch, unwatch = kit.compile, kit.watch, kit.unwatch
local reset_cjson, null = kit.reset_cjson, kit.state.null

local MAX_DEPTH = 200
-- How many values are handed to the host at once: Lua 5.1 allows for about 8000.
local MAX_RESULTS = 4000
local NAME = '@user_script'

local scripts = {}

---------------------------------------------------------------------------- values as tokens

local append

-- Fields of a table without its metamethods.
local function field(t, name)
  if getmetatable(t) == nil then
    return t[name]
  end
  return rawget(t, name)
end

local function append_array(t, out, n, depth)
  local start, is_bare, is_plain = n, getmetatable(t) == nil, true
  n = n + 3
  local i = 1
  local value = rawget(t, 1)
  while value ~= nil do
    local kind = type(value)
    if kind == 'string' or kind == 'number' or (value == false and state.resp == 2) then
      n = n + 1
      out[n] = value
    else
      is_plain = false
      n = append(value, out, n, depth)
    end
    i = i + 1
    if is_bare then
      value = t[i]
    else
      value = rawget(t, i)
    end
  end
  out[start + 1], out[start + 2], out[start + 3] = true, is_plain and 12 or 1, i - 1
  return n
end

local function append_map(map, out, n, depth)
  local start, count = n, 0
  out[n + 1], out[n + 2] = true, 4
  n = n + 3
  for key, value in next, map do
    count = count + 1
    n = append(key, out, n, depth)
    n = append(value, out, n, depth)
  end
  out[start + 3] = count
  return n
end

local function append_set(set, out, n, depth)
  local start, count = n, 0
  out[n + 1], out[n + 2] = true, 5
  n = n + 3
  for member in next, set do
    count = count + 1
    n = append(member, out, n, depth)
  end
  out[start + 3] = count
  return n
end

-- What a field of a table, if it has this type, makes of the table.
local function append_text(code)
  return function(text, out, n)
    out[n + 1], out[n + 2], out[n + 3] = true, code, text
    return n + 3
  end
end

local append_error, append_status, append_big_number = append_text(3), append_text(2), append_text(11)

local function append_table(t, out, n, depth)
  if depth > MAX_DEPTH then
    return append_error('ERR reached lua stack limit', out, n)
  end
  local value = field(t, 'err')
  if type(value) == 'string' then
    return append_error(value, out, n)
  end
  value = field(t, 'ok')
  if type(value) == 'string' then
    return append_status(value, out, n)
  end
  value = field(t, 'double')
  if type(value) == 'number' then
    out[n + 1], out[n + 2], out[n + 3] = true, 6, value
    return n + 3
  end
  value = field(t, 'map')
  if type(value) == 'table' then
    return append_map(value, out, n, depth + 1)
  end
  value = field(t, 'set')
  if type(value) == 'table' then
    return append_set(value, out, n, depth + 1)
  end
  value = field(t, 'big_number')
  if type(value) == 'string' then
    return append_big_number(value, out, n)
  end
  value = field(t, 'verbatim_string')
  if type(value) == 'table' then
    local format, text = field(value, 'format'), field(value, 'string')
    if type(format) == 'string' and type(text) == 'string' then
      out[n + 1], out[n + 2], out[n + 3], out[n + 4] = true, 10, format, text
      return n + 4
    end
  end
  return append_array(t, out, n, depth + 1)
end

function append(value, out, n, depth)
  local kind = type(value)
  if kind == 'string' or kind == 'number' then
    out[n + 1] = value
    return n + 1
  elseif kind == 'table' then
    return append_table(value, out, n, depth)
  elseif kind ~= 'boolean' then
    out[n + 1] = false
    return n + 1
  elseif state.resp == 3 then
    out[n + 1], out[n + 2] = true, value and 7 or 8
    return n + 2
  end
  out[n + 1] = value and 1
  return n + 1
end

-------------------------------------------------------------------------------- the answer

local pending, pending_from

local function more()
  local from = pending_from
  if not pending or from > #pending then
    pending = nil
    return
  end
  pending_from = from + MAX_RESULTS
  local last = pending_from - 1
  return unpack(pending, from, last < #pending and last or #pending)
end

-- An array of up to MAX_RESULTS strings and numbers is handed over as it is: nearly all are.
local function plain_length(t)
  local i = 0
  repeat
    i = i + 1
    local kind = type(t[i])
  until (kind ~= 'string' and kind ~= 'number') or i > MAX_RESULTS
  return t[i] == nil and i - 1 or nil
end

local function answer_table(t)
  if getmetatable(t) == nil and t[1] ~= nil and not (t.err or t.ok or t.double or t.map or t.set
      or t.big_number or t.verbatim_string) then
    local length = plain_length(t)
    if length then
      return 1, unpack(t, 1, length)
    end
  elseif type(field(t, 'err')) == 'string' then
    return 5, field(t, 'err')
  elseif type(field(t, 'ok')) == 'string' then
    return 4, field(t, 'ok')
  end
  local tokens = {}
  local n = append_table(t, tokens, 0, 1)
  if n <= MAX_RESULTS then
    return 2, unpack(tokens, 1, n)
  end
  pending, pending_from = tokens, MAX_RESULTS + 1
  return 3, unpack(tokens, 1, MAX_RESULTS)
end

local function answer_scalar(value)
  local kind = type(value)
  if kind == 'string' or kind == 'number' then
    return 0, value
  elseif kind == 'boolean' then
    if state.resp == 3 then
      return 2, true, value and 7 or 8
    end
    return 0, value and 1 or nil
  end
  return 0, nil
end

local function failure(e)
  if type(e) ~= 'table' then
    -- Errors of memory and of error handling pass the handler by.
    return -1, 'ERR ' .. e
  elseif rawget(e, 'host') ~= nil and type(e.host) == 'userdata' and e.host ~= null then
    return -2, e.host
  end
  local text, source, line = rawget(e, 'err'), rawget(e, 'source'), rawget(e, 'line')
  if type(text) ~= 'string' then
    text = type(text) == 'number' and text .. '' or 'ERR unknown error'
  end
  return -1, text, source, line
end

----------------------------------------------------------------------------------- the host

-- KEYS and ARGV of many words.
local function split_table(key_count, words)
  local keys, args = {}, {}
  for i = 1, key_count do
    keys[i] = words[i]
  end
  for i = key_count + 1, #words do
    args[i - key_count] = words[i]
  end
  return keys, args
end

local function split(key_count, ...)
  if type((...)) == 'table' then
    return split_table(key_count, (...))
  elseif key_count == 1 then
    return { (...) }, { select(2, ...) }
  elseif key_count == 0 then
    return {}, { ... }
  end
  return split_table(key_count, { ... })
end

-- Takes away what the script could have left behind.
local function finish(...)
  unwatch()
  reset_cjson()
  globals.KEYS, globals.ARGV = nil, nil
  return ...
end

local function check_answer(ok, ...)
  if ok then
    return ...
  end
  return failure((...))
end

local function run(id, period, key_count, ...)
  globals.KEYS, globals.ARGV = split(key_count, ...)
  state.resp = 2
  watch(period)
  -- Called by C, not by us: in a script, error(text, 2) finds no position there.
  local ok, value = xpcall(scripts[id], handler)
  if not ok then
    return finish(failure(value))
  elseif type(value) == 'table' then
    -- A table may be huge, or endless: still watched, and within the limit of memory.
    return finish(check_answer(pcall(answer_table, value)))
  end
  return finish(answer_scalar(value))
end

-- All chunks have run. A stray access of one of them, or a chunk compiled elsewhere, finds
-- an empty global table.
local everything = _G
for name in pairs(everything) do
  everything[name] = nil
end

return {
  compile = function(id, source)
    local script, problem = compile(source, NAME)
    if not script then
      return false, problem
    end
    scripts[id] = script
    return true
  end,
  forget = function(id)
    if id == nil then
      scripts = {}
    else
      scripts[id] = nil
    end
  end,
  run = run,
  more = more,
}
