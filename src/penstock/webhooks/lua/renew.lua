-- uses: common
-- Whoever has these deliveries is still at work: their leases count from now.
--
-- KEYS[1..10]  see common.lua
-- ARGV[1]      lease in ms
-- ARGV[2…]     id, token, id, token, …
-- Reply        the ids whose lease was lost

local lost = {}
for place = 2, #ARGV, 2 do
  local delivery = common.delivery(ARGV[place])
  if delivery and delivery.status == 'leased' and delivery.token == tonumber(ARGV[place + 1]) then
    delivery.lease_ms = common.now + tonumber(ARGV[1])
    redis.call('ZADD', KEYS[5], delivery.lease_ms, delivery.id)
    common.save(delivery)
  else
    lost[#lost + 1] = ARGV[place]
  end
end
return lost
