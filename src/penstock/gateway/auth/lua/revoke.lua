-- Revoke a token until it would have expired anyway. Revoking again never shortens it.
--
-- KEYS[1]  jwt.{JTI}.revoke   string: when the token expires, seconds since 1970 as decimal text; lives until then
-- ARGV[1]  that time, as it is stored
-- ARGV[2]  the same as a deadline that the store can keep
-- Reply    1 if the token is revoked now, 0 if it has expired already and nothing was written

local deadline = tonumber(ARGV[2])
if deadline <= tonumber(redis.call('TIME')[1]) then
  return 0
end
local kept = redis.call('EXPIRETIME', KEYS[1])
-- -1: a key without deadline, which somebody else wrote: it revokes for good.
if kept == -1 or kept >= deadline then
  return 1
end
redis.call('SET', KEYS[1], ARGV[1], 'EXAT', ARGV[2])
return 1
