-- The struct library: C structures in strings.
--
-- Chunk argument:  kit      see kit.lua
-- Uses, of kit.host (structs.py); each answers one of
--   true, result, …       2, table of results       false, i, problem
-- the last if argument i is bad (0: none is):
--   struct_pack(format, value, …)     -> string
--   struct_unpack(format, data, at)   -> value, …, next position
--   struct_size(format)               -> number
-- Leaves in it:    kit.libraries.struct

local kit = ...
local find, select, tostring, type, unpack = string.find, select, tostring, type, unpack
local host, number, fail, argument_error = kit.host, kit.number, kit.fail, kit.argument_error

local function settle(ok, ...)
  if ok == true then
    return ...
  elseif ok then
    return unpack((...))
  end
  local i, problem = ...
  if i == 0 then
    fail(problem)
  end
  argument_error(i, problem)
end

local function text(i, v, count)
  if type(v) == 'number' then
    return tostring(v)
  elseif type(v) ~= 'string' then
    argument_error(i, 'string expected, got ' .. (i > count and 'no value' or type(v)))
  end
  return v
end

-- The host gets strings and numbers only; it names the type that it wanted, we the one it got.
local function settle_pack(values, ok, ...)
  if ok then
    return ...
  end
  local i, problem = ...
  if i > 0 and find(problem, 'got $') then
    problem = problem .. type(values[i])
  end
  return settle(ok, i, problem)
end

local function pack(...)
  local count = select('#', ...)
  local values = { ... }
  values[1] = text(1, values[1], count)
  local plain = {}
  for i = 1, count do
    local kind = type(values[i])
    plain[i] = (kind == 'string' or kind == 'number') and values[i] or false
  end
  return settle_pack(values, host.struct_pack(unpack(plain, 1, count)))
end

local function unpack_struct(...)
  local count, format, data, at = select('#', ...), ...
  format = text(1, format, count)
  data = text(2, data, count)
  at = at == nil and 1 or number(3, at)
  return settle(host.struct_unpack(format, data, at))
end

local function size(...)
  return settle(host.struct_size(text(1, (...), select('#', ...))))
end

kit.libraries.struct = { pack = pack, unpack = unpack_struct, size = size }
