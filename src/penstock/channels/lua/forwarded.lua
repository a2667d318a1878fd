-- Drops from an outbox what has been handed on. Others may do the same at the same time.
--
-- KEYS[1]  the outbox
-- ARGV     entries, as they were read from its head
-- Reply    how many are left

for _, entry in ipairs(ARGV) do
  if redis.call('LINDEX', KEYS[1], 0) ~= entry then break end
  redis.call('LPOP', KEYS[1])
end
return redis.call('LLEN', KEYS[1])
