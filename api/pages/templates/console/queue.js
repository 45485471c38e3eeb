// Optional enhancements of the queue: dragging posts, painting hours, and arrow keys between them.
(() => {
  'use strict';
  const form = document.querySelector('form[data-queue]');
  const rows = form?.querySelector('button[name="move"]') ? [...form.querySelectorAll('.post-row')] : [];
  const idOf = (row) => row.querySelector('.post-text').id.slice('post-'.length);
  let moved = null;
  const mark = (target) => { for (const row of rows) row.classList.toggle('over-drop', row === target); };
  for (const row of rows) {
    row.draggable = true;
    row.addEventListener('dragstart', (event) => {
      moved = row;
      event.dataTransfer.effectAllowed = 'move';
      event.dataTransfer.setData('text/plain', idOf(row));
    });
    row.addEventListener('dragover', (event) => {
      if (!moved) return;
      mark(row === moved ? null : row);
      if (row !== moved) event.preventDefault();
    });
    row.addEventListener('dragend', () => { moved = null; mark(null); });
    row.addEventListener('drop', (event) => {
      if (!moved || moved === row) return;
      event.preventDefault();
      // A post that is dragged down takes the place after this one.
      const place = rows.indexOf(row);
      const next = rows.indexOf(moved) < place ? rows[place + 1] : row;
      const field = document.createElement('input');
      field.type = 'hidden';
      field.name = 'move';
      field.value = `${idOf(moved)}:${next ? idOf(next) : form.dataset.after}`;
      form.append(field);
      form.submit();
    });
  }

  const grid = document.querySelector('[data-paint]');
  const boxOf = (event) => event.target.closest('td')?.querySelector('input:enabled');
  let first = null;
  let paint = null;
  grid.addEventListener('pointerdown', (event) => {
    first = event.pointerType === 'mouse' ? boxOf(event) : null;
    paint = null;
  });
  grid.addEventListener('pointerover', (event) => {
    const box = boxOf(event);
    if (!first || !box || box === first || !(event.buttons & 1)) return;
    paint ??= !first.checked;
    first.checked = paint;
    box.checked = paint;
  });
  document.addEventListener('pointerup', () => { first = null; });
  // Releasing the mouse on the first hour is also a click. That of a key has no detail.
  grid.addEventListener('click', (event) => { if (paint !== null && event.detail) event.preventDefault(); });

  // The 168 hours are one tab stop.
  const hours = [...grid.querySelectorAll('input:enabled')];
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -7, ArrowDown: 7 };
  const stopAt = (hour) => { for (const other of hours) other.tabIndex = other === hour ? 0 : -1; };
  if (!hours.length) return;
  grid.setAttribute('role', 'grid');
  stopAt(hours[0]);
  grid.addEventListener('focusin', (event) => stopAt(event.target));
  grid.addEventListener('keydown', (event) => {
    const next = hours[hours.indexOf(event.target) + steps[event.key]];
    // With a modifier, an arrow key is a command of the browser.
    if (!next || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    next.focus();
  });
})();
