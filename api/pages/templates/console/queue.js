// Optional enhancements of the queue: dragging posts, and painting hours with the mouse.
(() => {
  'use strict';
  const form = document.querySelector('form[data-queue]');
  const rows = form?.querySelector('button[name="move"]') ? [...form.querySelectorAll('.post-row')] : [];
  const idOf = (row) => row.querySelector('.post-text').id.slice('post-'.length);
  let moved = null;
  for (const row of rows) {
    row.draggable = true;
    row.addEventListener('dragstart', (event) => {
      moved = row;
      event.dataTransfer.effectAllowed = 'move';
      event.dataTransfer.setData('text/plain', idOf(row));
    });
    row.addEventListener('dragover', (event) => { if (moved && moved !== row) event.preventDefault(); });
    row.addEventListener('dragend', () => { moved = null; });
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
  let paint = false;
  grid?.addEventListener('pointerdown', (event) => {
    first = event.pointerType === 'mouse' ? boxOf(event) : null;
    paint = first ? !first.checked : false;
  });
  grid?.addEventListener('pointerover', (event) => {
    const box = boxOf(event);
    if (!first || !box || box === first || !(event.buttons & 1)) return;
    first.checked = paint;
    box.checked = paint;
  });
  document.addEventListener('pointerup', () => { first = null; });
})();
