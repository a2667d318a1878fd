-- The tools that every library chunk is built with. Nothing here is visible to a script.
--
-- Chunk argument:  kit    the table that the chunks share; arrives with
--   kit.host              Python callables, by name (see sandbox.py)
-- Leaves in it:
--   kit.state             { aborted, resp, null } of the running script
--   kit.readonly(t)       a proxy of t that a script can read and not change
--   kit.behind            proxy -> the table behind it
--   kit.fail(text)        raise text with the position of the script, as C functions do
--   kit.argument_error(i, problem)   raise "bad argument #i to 'name' (problem)"
--   kit.number(i, v)      v as a number, or an argument error
--   kit.int32(x)          x as C converts it to an int
--   kit.tidy(e)           e without a position inside our own chunks
--   kit.blame(e)          the same inside an error handler: with the script's position
--   kit.handler(e)        the error handler of scripts
--
-- Rules of every chunk in this folder: standard functions are taken into locals at the
-- top, since the global table is emptied once all chunks have run; no Python object and
-- no unprotected table ever leaves a function that a script can call.

local kit = ...
local error, getinfo, rawset, setmetatable = error, debug.getinfo, rawset, setmetatable
local ceil, floor, gsub, match = math.ceil, math.floor, string.gsub, string.match
local tonumber, tostring, type = tonumber, tostring, type

-- Chunk name of this folder's files; frames with it are never blamed.
local LIBRARY = '=(lib)'
local LIBRARY_POSITION = '^%(lib%):%d+: '

-- A call of the host that answers nil found no memory for its answer: exceptions must not
-- cross the border, so the error is raised on this side of it. (call and tick have answers
-- of their own for that.)
local function check_memory(first, ...)
  if first == nil then
    error('not enough memory', 0)
  end
  return first, ...
end

local host = kit.host
for name, f in pairs(host) do
  if type(f) == 'userdata' and name ~= 'call' and name ~= 'call_packed' and name ~= 'tick' then
    host[name] = function(...)
      return check_memory(f(...))
    end
  end
end

local state = { aborted = false, resp = 2, null = newproxy() }
kit.state = state

------------------------------------------------------------------------ read-only tables

local behind = setmetatable({}, { __mode = 'k' })
kit.behind = behind

local function refuse_change()
  kit.fail('Attempt to modify a readonly table')
end

-- `meta` may carry more metamethods, and __metatable: what getmetatable answers.
function kit.readonly(t, meta)
  meta = meta or {}
  meta.__index = t
  meta.__newindex = refuse_change
  if meta.__metatable == nil then
    meta.__metatable = false
  end
  local proxy = setmetatable({}, meta)
  behind[proxy] = t
  return proxy
end

---------------------------------------------------------------------------------- errors

-- The first frame from `level` on (1 is the caller of this function) that is not ours,
-- the name by which it called us, and its level. Tail calls have lost their frame and
-- are passed over.
local function frame(level)
  local info, name
  repeat
    level = level + 1
    if info and info.what ~= 'tail' then
      name = info.name
    end
    info = getinfo(level, 'nSl')
  until not info or (info.source ~= LIBRARY and info.what ~= 'tail')
  return info, name, level - 1
end

local function position(info)
  if info and info.currentline > 0 then
    return info.short_src .. ':' .. info.currentline .. ': '
  end
  return ''
end

function kit.fail(text)
  error(position(frame(1)) .. text, 0)
end

function kit.argument_error(i, problem)
  local info, name = frame(1)
  error(position(info) .. "bad argument #" .. i .. " to '" .. (name or '?') .. "' (" .. problem .. ')', 0)
end

function kit.number(i, v)
  local kind = type(v)
  if kind == 'number' then
    return v
  end
  local converted = kind == 'string' and tonumber(v)
  if not converted then
    kit.argument_error(i, 'number expected, got ' .. (v == nil and 'no value' or kind))
  end
  return converted
end

function kit.int32(x)
  if x ~= x or x >= 2 ^ 63 or x < -2 ^ 63 then
    return 0
  end
  x = (x < 0 and ceil(x) or floor(x)) % 2 ^ 32
  return x < 2 ^ 31 and x or x - 2 ^ 32
end

-- A C function called by one of our chunks blames our line. Without the script's frames at
-- hand, that position is dropped.
local function tidy(e)
  if type(e) == 'string' and match(e, LIBRARY_POSITION) then
    return (gsub(e, LIBRARY_POSITION, '', 1))
  end
  return e
end
kit.tidy = tidy

-- The frame to blame, seen from the handler that calls this: not the C function that raised
-- the error, but its caller.
local function culprit()
  local info, _, level = frame(3)
  if info and info.what == 'C' then
    info = frame(level + 1)
  end
  return info
end

-- Inside an error handler: the position is replaced by the script's.
function kit.blame(e)
  if type(e) == 'string' and match(e, LIBRARY_POSITION) then
    return position(culprit()) .. tidy(e)
  end
  return e
end

-- Every uncaught error becomes a table { err, source, line }, or { host } if it is an
-- exception of the host.
function kit.handler(e)
  if type(e) == 'userdata' and e ~= state.null then
    state.aborted = true
    return { host = e }
  end
  local info = culprit()
  if type(e) == 'string' and match(e, LIBRARY_POSITION) then
    e = position(info) .. tidy(e)
  end
  if type(e) ~= 'table' or behind[e] then
    e = { err = 'ERR ' .. tostring(e) }
  end
  -- A tail call of the script may have taken the place with it.
  if info and info.currentline > 0 then
    rawset(e, 'source', info.source)
    rawset(e, 'line', info.currentline)
  end
  return e
end
