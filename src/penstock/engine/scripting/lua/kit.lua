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
--   kit.frame(level)      the frame that an error is blamed on
--   kit.tidy(e)           e without a position inside our own chunks
--   kit.handler(e)        the error handler of scripts
--
-- Rules of every chunk in this folder: standard functions are taken into locals at the
-- top, since the global table is emptied once all chunks have run; no Python object and
-- no unprotected table ever leaves a function that a script can call.

local kit = ...
local error, getinfo, rawset, setmetatable = error, debug.getinfo, rawset, setmetatable
local gsub, match, tonumber, tostring, type = string.gsub, string.match, tonumber, tostring, type

-- Chunk name of this folder's files; frames with it are never blamed.
local LIBRARY = '=(lib)'
local LIBRARY_POSITION = '^%(lib%):%d+: '

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
kit.frame = frame

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

-- A C function called by one of our chunks blames our line: drop that.
function kit.tidy(e)
  if type(e) == 'string' and match(e, LIBRARY_POSITION) then
    return (gsub(e, LIBRARY_POSITION, '', 1))
  end
  return e
end

-- Every uncaught error becomes a table { err, source, line }, or { host } if it is an
-- exception of the host.
function kit.handler(e)
  local info, _, level = frame(2)
  if info and info.what == 'C' then
    -- Not the function that raised it is to blame, its caller is.
    info = frame(level + 1)
  end
  if type(e) == 'userdata' and e ~= state.null then
    state.aborted = true
    return { host = e }
  end
  if type(e) == 'string' and match(e, LIBRARY_POSITION) then
    e = position(info) .. gsub(e, LIBRARY_POSITION, '', 1)
  end
  if type(e) ~= 'table' or behind[e] then
    e = { err = 'ERR ' .. tostring(e) }
  end
  if info then
    rawset(e, 'source', info.source)
    rawset(e, 'line', info.currentline)
  end
  return e
end
