-- For the operator's lists alone: as an expression it cannot be taken for the count of those that run in a lane, which would
-- then read all that ever ran there.
drop index jobs_lane;
create index jobs_lane on jobs ((lane || ''), id) where lane is not null;
