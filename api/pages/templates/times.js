// Shows times in the visitor's time zone. The title is the exact time in UTC.
for (const time of document.querySelectorAll('time[datetime]')) {
  const at = new Date(time.dateTime);
  if (Number.isNaN(at.getTime())) continue;
  time.title = time.textContent;
  time.textContent = at.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
}
