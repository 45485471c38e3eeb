-- Running jobs of one kind are capped for each workspace, so that one whose sites hang leaves places to the others.
alter table jobs add column workspace_lane text;
create index jobs_workspace_running on jobs (workspace_lane) where state = 'running' and workspace_lane is not null;
create index jobs_workspace_waiting on jobs (workspace_lane, lane)
    where state = 'ready' and waiting and workspace_lane is not null;

update jobs
set workspace_lane = 'workspace:' || b.workspace_id || ':publish_target'
from post_targets t
join posts p on p.id = t.post_id
join brands b on b.id = p.brand_id
where jobs.kind = 'publish_target' and jobs.state in ('scheduled', 'ready', 'running') and t.id = jobs.subject_id;
