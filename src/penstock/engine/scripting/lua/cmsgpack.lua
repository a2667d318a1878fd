-- The cmsgpack library: MessagePack.
--
-- Chunk argument:  kit      see kit.lua
-- Uses, of kit.host:
--   pack_double(x)          -> 5 bytes (float) if that is exact, else 9 bytes
--   unpack_double(bytes)    -> number, from the 4 or 8 bytes behind the marker
-- Leaves in it:    kit.libraries.cmsgpack
--
--   00-7f  positive int   a0-bf  string     cc-cf  uint 8-64   d9-db  string 8-32
--   80-8f  map            c0     nil        d0-d3  int 8-64    dc-dd  array 16-32
--   90-9f  array          c2-c3  booleans   ca-cb  float 32-64 de-df  map 16-32
--                                                             e0-ff  negative int
--
-- Other markers (binary, extensions) are refused, as Redis's library does.

local kit = ...
local byte, char, concat, floor, sub = string.byte, string.char, table.concat, math.floor, string.sub
local error, next, select, tostring, type, unpack = error, next, select, tostring, type, unpack
local fail, argument_error, int32, number = kit.fail, kit.argument_error, kit.int32, kit.number
local pack_double, unpack_double = kit.host.pack_double, kit.host.unpack_double

local MAX_NESTING = 16
-- What Lua 5.1 lets a function return.
local MAX_RESULTS = 7900

-------------------------------------------------------------------------------------- pack

-- n modulo 2^16 or 2^32, big endian.
local function two(n)
  return char(floor(n / 256) % 256, n % 256)
end

local function four(n)
  return char(floor(n / 2 ^ 24) % 256, floor(n / 2 ^ 16) % 256, floor(n / 256) % 256, n % 256)
end

local function pack_integer(n)
  if n >= 0 then
    if n <= 127 then
      return char(n)
    elseif n <= 0xff then
      return '\204' .. char(n)
    elseif n <= 0xffff then
      return '\205' .. two(n)
    elseif n <= 0xffffffff then
      return '\206' .. four(n)
    end
    return '\207' .. four(floor(n / 2 ^ 32)) .. four(n % 2 ^ 32)
  elseif n >= -32 then
    return char(n % 256)
  elseif n >= -128 then
    return '\208' .. char(n % 256)
  elseif n >= -2 ^ 15 then
    return '\209' .. two(n)
  elseif n >= -2 ^ 31 then
    return '\210' .. four(n)
  end
  return '\211' .. four(floor(n / 2 ^ 32)) .. four(n % 2 ^ 32)
end

local function pack_number(n)
  if n % 1 == 0 and n >= -2 ^ 63 and n < 2 ^ 63 then
    return pack_integer(n)
  end
  return pack_double(n)
end

local function string_header(size)
  if size < 32 then
    return char(160 + size)
  elseif size <= 0xff then
    return '\217' .. char(size)
  elseif size <= 0xffff then
    return '\218' .. two(size)
  end
  return '\219' .. four(size)
end

-- `short` is the marker of up to 15 entries, `long` that of up to 2^16.
local function table_header(count, short, long)
  if count <= 15 then
    return char(short + count)
  elseif count <= 0xffff then
    return char(long) .. two(count)
  end
  return char(long + 1) .. four(count)
end

-- How many entries a table has, and whether its keys are 1 to that number.
local function measure(t)
  local count, max, is_array = 0, 0, true
  for key in next, t do
    count = count + 1
    if type(key) ~= 'number' or key <= 0 or key % 1 ~= 0 then
      is_array = false
    elseif key > max then
      max = key
    end
  end
  return count, is_array and max == count
end

local function pack_value(v, out, n, level)
  local kind = type(v)
  n = n + 1
  if kind == 'string' then
    out[n] = string_header(#v)
    n = n + 1
    out[n] = v
  elseif kind == 'number' then
    out[n] = pack_number(v)
  elseif kind == 'boolean' then
    out[n] = v and '\195' or '\194'
  elseif kind == 'table' and level < MAX_NESTING then
    local count, is_array = measure(v)
    if is_array then
      out[n] = table_header(count, 144, 220)
      for i = 1, count do
        n = pack_value(v[i], out, n, level + 1)
      end
    else
      out[n] = table_header(count, 128, 222)
      for key, value in next, v do
        n = pack_value(key, out, n, level + 1)
        n = pack_value(value, out, n, level + 1)
      end
    end
  else
    out[n] = '\192'
  end
  return n
end

local function pack(...)
  local count = select('#', ...)
  if count == 0 then
    argument_error(0, 'MessagePack pack needs input.')
  end
  local out, n = {}, 0
  for i = 1, count do
    n = pack_value((select(i, ...)), out, n, 0)
  end
  return concat(out, '', 1, n)
end

------------------------------------------------------------------------------------- unpack

local unpack_value

local function bytes(s, at, count)
  if at + count - 1 > #s then
    fail('Missing bytes in input.')
  end
  return sub(s, at, at + count - 1), at + count
end

local function unsigned(s, at, count)
  local text, after = bytes(s, at, count)
  local n = 0
  for i = 1, count do
    n = n * 256 + byte(text, i)
  end
  return n, after
end

local function signed(s, at, count)
  local n, after = unsigned(s, at, count)
  if n >= 2 ^ (8 * count - 1) then
    n = n - 2 ^ (8 * count)
  end
  return n, after
end

-- 64 bits do not fit a double while they are added up: the two halves are, and the upper
-- one carries the sign (of a "uint 64" as well, which Redis's library reads as signed).
local function integer64(s, at)
  local high, low
  high, at = signed(s, at, 4)
  low, at = unsigned(s, at, 4)
  return high * 2 ^ 32 + low, at
end

local function double(s, at, count)
  local text, after = bytes(s, at, count)
  return unpack_double(text), after
end

local function array(s, at, count)
  local t = {}
  for i = 1, count do
    t[i], at = unpack_value(s, at)
  end
  return t, at
end

local function map(s, at, count)
  local t = {}
  for _ = 1, count do
    local key, value
    key, at = unpack_value(s, at)
    value, at = unpack_value(s, at)
    if key == nil then
      error('table index is nil', 0)
    elseif key ~= key then
      error('table index is NaN', 0)
    end
    t[key] = value
  end
  return t, at
end

local function sized(read, width)
  return function(s, at)
    local count
    count, at = unsigned(s, at, width)
    return read(s, at, count)
  end
end

local function fixed(read, width)
  return function(s, at)
    return read(s, at, width)
  end
end

local function constant(value)
  return function(_, at)
    return value, at
  end
end

local READERS = {
  [0xc0] = constant(nil),
  [0xc2] = constant(false),
  [0xc3] = constant(true),
  [0xca] = fixed(double, 4),
  [0xcb] = fixed(double, 8),
  [0xcc] = fixed(unsigned, 1),
  [0xcd] = fixed(unsigned, 2),
  [0xce] = fixed(unsigned, 4),
  [0xcf] = integer64,
  [0xd0] = fixed(signed, 1),
  [0xd1] = fixed(signed, 2),
  [0xd2] = fixed(signed, 4),
  [0xd3] = integer64,
  [0xd9] = sized(bytes, 1),
  [0xda] = sized(bytes, 2),
  [0xdb] = sized(bytes, 4),
  [0xdc] = sized(array, 2),
  [0xdd] = sized(array, 4),
  [0xde] = sized(map, 2),
  [0xdf] = sized(map, 4),
}

function unpack_value(s, at)
  local marker = byte(s, at)
  if not marker then
    fail('Missing bytes in input.')
  end
  at = at + 1
  if marker <= 0x7f then
    return marker, at
  elseif marker >= 0xe0 then
    return marker - 256, at
  elseif marker >= 0xa0 and marker <= 0xbf then
    return bytes(s, at, marker - 0xa0)
  elseif marker <= 0x8f then
    return map(s, at, marker - 0x80)
  elseif marker <= 0x9f then
    return array(s, at, marker - 0x90)
  end
  local read = READERS[marker]
  if not read then
    fail('Bad data format in input.')
  end
  return read(s, at)
end

-- Up to `limit` values from `offset` (0 is the start) on, behind the offset of what is left
-- (-1: nothing); without limit and offset all values and no offset.
local function unpack_from(s, count, limit, offset)
  if type(s) == 'number' then
    s = tostring(s)
  elseif type(s) ~= 'string' then
    argument_error(1, 'string expected, got ' .. (count == 0 and 'no value' or type(s)))
  end
  local wants_all = limit == 0 and offset == 0
  if offset < 0 or limit < 0 then
    fail('Invalid request to unpack with offset of ' .. offset .. ' and limit of ' .. #s .. '.')
  elseif offset > #s then
    fail('Start offset ' .. offset .. ' greater than input length ' .. #s .. '.')
  end
  local results, n, at = {}, 0, offset + 1
  while at <= #s and (wants_all or n < limit) do
    n = n + 1
    results[n], at = unpack_value(s, at)
    if n > MAX_RESULTS then
      fail('too many return values at once; use unpack_one or unpack_limit instead.')
    end
  end
  if wants_all then
    return unpack(results, 1, n)
  end
  return at > #s and -1 or at - 1, unpack(results, 1, n)
end

local function optional(i, v)
  return v == nil and 0 or int32(number(i, v))
end

kit.libraries.cmsgpack = {
  pack = pack,
  unpack = function(...)
    return unpack_from((...), select('#', ...), 0, 0)
  end,
  unpack_one = function(...)
    local s, offset = ...
    return unpack_from(s, select('#', ...), 1, optional(2, offset))
  end,
  unpack_limit = function(...)
    local s, limit, offset = ...
    return unpack_from(s, select('#', ...), int32(number(2, limit)), optional(3, offset))
  end,
  _NAME = 'cmsgpack',
  _VERSION = 'lua-cmsgpack 0.4.0',
}
