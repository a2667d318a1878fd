-- uses: common groups retention compaction
-- TCOMPACT: keep the newest message of each tag; one bounded step.
--
-- KEYS[1..8]  the stream and its side keys (common.lua)
-- ARGV[1]     begin: a new pass from the end; go: on with the one that runs
-- Reply       {how many messages went, 1: the pass is over}

local LOOKED_AT = 1000

return common.run(function()
  local self = common.open(0)
  if not self.token then return {0, 1} end
  if ARGV[1] == 'begin' then
    common.ensure(self)
    compaction.begin(self)
  elseif self.pass == 0 then
    return {0, 1} -- somebody else came to its end
  end
  local now = common.now_ms()
  local removed, is_over = compaction.step(self, now, LOOKED_AT)
  if is_over then retention.apply(self, now) end
  common.save(self)
  return {removed, is_over and 1 or 0}
end)
