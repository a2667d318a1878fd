-- Counters in slots of three lengths: 5 s kept for 5 min, 60 s for 2 h, 600 s for 24 h.
--
-- A field is `<what> <pipeline> <group> <owner>`; readers sum over what they do not ask for, so one counter
-- serves all three views. `what` is one of
--   q                  entered a queue for the first time
--   s <bucket>         was begun, after waiting for so long
--   r                  a step is tried again
--   l                  a lease was lost
--   e <status> <bucket>  ended, after so long
-- A bucket b stands for 2^(b/2) - 1 ms and more, up to the next. Counts of one script run are summed first, so a
-- batch costs as much as one transaction.

local LEVELS = {{'stats1H:', 5, 300}, {'stats2H:', 60, 7200}, {'stats3H:', 600, 86400}}
local tally = {}

local function bucket_of(ms)
  return math.floor(2 * math.log(math.max(ms, 0) + 1) / math.log(2))
end

local function count(what, pipeline, group, owner)
  local field = what .. ' ' .. pipeline .. ' ' .. group .. ' ' .. owner
  tally[field] = (tally[field] or 0) + 1
end

-- Once at the end of every script that counts.
local function save_statistics()
  for field, number in pairs(tally) do
    for _, level in ipairs(LEVELS) do
      local slot = math.floor(now / 1000 / level[2]) * level[2]
      local key = prefix .. level[1] .. string.format('%.0f', slot)
      if redis.call('HINCRBY', key, field, number) == number then
        redis.call('EXPIRE', key, level[2] + level[3])
      end
    end
  end
  tally = {}
end
