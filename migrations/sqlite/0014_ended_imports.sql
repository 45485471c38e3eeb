-- Imports that ended: the oldest go first, once nobody asks for them any more.
create index media_jobs_ended on media_jobs (updated_at) where status in ('completed', 'failed');
