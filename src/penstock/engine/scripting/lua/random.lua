-- math.random and math.randomseed as scripts see them: the same sequence from the start of
-- every process, not begun anew by every script, as in Redis 7.
--
-- Chunk argument:  kit      see kit.lua
-- Leaves in it:
--   kit.libraries.random, kit.libraries.randomseed
--
-- The generator is the linear congruential one of drand48: x' = 0x5DEECE66D·x + 0xB mod 2^48,
-- of which the upper 31 bits are used. A double holds 53 bits, so the product is made of two
-- halves of 24 bits each.

local kit = ...
local floor, select = math.floor, select
local argument_error, fail, int32, number = kit.argument_error, kit.fail, kit.int32, kit.number

local HALF = 2 ^ 24
local FACTOR_HIGH, FACTOR_LOW, ADDEND = 0x5DE, 0xECE66D, 0xB
local MAX = 2 ^ 31 - 1

local high, low

local function seed(n)
  local x = (n % 2 ^ 32) * 2 ^ 16 + 0x330E
  high, low = floor(x / HALF), x % HALF
end

local function draw()
  local product = low * FACTOR_LOW + ADDEND
  high = (high * FACTOR_LOW + low * FACTOR_HIGH + floor(product / HALF)) % HALF
  low = product % HALF
  return (floor((high * HALF + low) / 2 ^ 17) % MAX) / MAX
end

seed(0x1234ABCD)

function kit.libraries.random(...)
  local r = draw()
  local count, first, last = select('#', ...), ...
  if count == 0 then
    return r
  elseif count == 1 then
    last = int32(number(1, first))
    if last < 1 then
      argument_error(1, 'interval is empty')
    end
    return floor(r * last) + 1
  elseif count == 2 then
    first, last = int32(number(1, first)), int32(number(2, last))
    if first > last then
      argument_error(2, 'interval is empty')
    end
    return floor(r * (last - first + 1)) + first
  end
  fail('wrong number of arguments')
end

function kit.libraries.randomseed(n)
  seed(int32(number(1, n)))
end
