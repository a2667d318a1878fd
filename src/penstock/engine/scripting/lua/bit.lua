-- The bit library: operations on 32 bits, results signed.
--
-- Chunk argument:  kit      see kit.lua
-- Uses:            kit.host.bit_*(number, …) -> number or string; Python has real integers
-- Leaves in it:    kit.libraries.bit

local kit = ...
local host, int32, number = kit.host, kit.int32, kit.number
local select, type, unpack = select, type, unpack

-- Arguments as numbers; the host sees nothing else.
local function numbers(...)
  local values = { ... }
  local count = select('#', ...)
  for i = 1, count == 0 and 1 or count do
    values[i] = number(i, values[i])
  end
  return unpack(values, 1, count)
end

local function one(operation)
  return function(a)
    if type(a) ~= 'number' then
      a = number(1, a)
    end
    return operation(a)
  end
end

local function two(operation)
  return function(a, b)
    if type(a) ~= 'number' or type(b) ~= 'number' then
      a, b = number(1, a), number(2, b)
    end
    return operation(a, b)
  end
end

local function many(operation)
  return function(...)
    local a, b, c = ...
    if c == nil and type(a) == 'number' and type(b) == 'number' then
      return operation(a, b)
    end
    return operation(numbers(...))
  end
end

local function tohex(x, digits)
  return host.bit_tohex(number(1, x), digits == nil and 8 or int32(number(2, digits)))
end

kit.libraries.bit = {
  tobit = one(host.bit_tobit),
  bnot = one(host.bit_bnot),
  bswap = one(host.bit_bswap),
  band = many(host.bit_band),
  bor = many(host.bit_bor),
  bxor = many(host.bit_bxor),
  lshift = two(host.bit_lshift),
  rshift = two(host.bit_rshift),
  arshift = two(host.bit_arshift),
  rol = two(host.bit_rol),
  ror = two(host.bit_ror),
  tohex = tohex,
}
