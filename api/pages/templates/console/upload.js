// The list of uploads on a page with the form `upload`: several files, one after another, with progress (transfer.js).
(() => {
  'use strict';
  const box = document.querySelector('[data-uploads]');
  const form = document.getElementById('upload');
  const composer = document.querySelector('[data-composer]');
  const { file: input, alt_text: description, asset_type: kind } = form.elements;
  const say = (text) => { document.getElementById('live').textContent = text; };
  // Beside the button of a post that was not submitted because of its uploads.
  const note = document.createElement('p');
  note.className = 'warning';
  const tell = (text) => {
    note.textContent = text;
    say(text);
  };
  const uploads = new Map();
  const all = (...states) => [...uploads.values()].filter((upload) => states.includes(upload.state));
  let count = 0;

  const show = (upload, state, text) => {
    const [bar, status] = upload.item.querySelectorAll('progress, p');
    const [button, word] = upload.item.querySelectorAll('button, button > span');
    upload.state = state;
    bar.hidden = state === 'done';
    status.className = ['lost', 'failed'].includes(state) ? 'error' : 'muted';
    status.textContent = text;
    button.hidden = ['waiting', 'failed'].includes(state);
    button.parentElement.hidden = state === 'done';
    word.textContent = { active: 'Pause', absent: 'Choose file' }[state] ?? 'Continue';
  };
  const progress = (upload, sent) => {
    const [bar, status] = upload.item.querySelectorAll('progress, p');
    const percent = Math.min(100, Math.floor((sent / (upload.size || 1)) * 100));
    if (Math.floor(percent / 25) > Math.floor(bar.value / 25)) say(`${upload.name}: ${percent}%`);
    bar.value = percent;
    if (upload.state === 'active') status.textContent = `${percent}%`;
  };

  // Shows the new file in the library, or as a chosen file of the post. Unsaved input of the page is kept.
  const load = async (url, options) => {
    const response = await fetch(url, options);
    return new DOMParser().parseFromString(await response.text(), 'text/html');
  };
  const add = async ({ id }) => {
    if (!composer) {
      const page = await load(location.href);
      document.getElementById('library').replaceChildren(...page.getElementById('library').childNodes);
      return;
    }
    const body = new URLSearchParams(new FormData(composer));
    body.append('_action', `attach:${id}`);
    const tileIn = (page) => page.querySelector(`#f-media [name=media][value="${id}"]`)?.closest('.pick');
    const tile = tileIn(await load(composer.action, { method: 'POST', body }));
    tileIn(document)?.remove();
    const last = [...document.querySelectorAll('#f-media [name=media]:checked')].pop();
    if (last) last.closest('.pick').after(tile);
    else document.querySelector('#f-media .picks').prepend(tile);
    tile.querySelector('input').dispatchEvent(new Event('input', { bubbles: true }));
  };

  const run = async (upload) => {
    show(upload, 'active', 'Uploading …');
    try {
      if (upload.kind === 'video') await transfer.sendVideo(upload);
      else await transfer.sendImage(upload, form);
      let text = composer ? 'Added to the post' : 'Uploaded';
      await add(upload).catch(() => { text = 'Uploaded. Reload the page to see the file.'; });
      show(upload, 'done', text);
      say(`${upload.name}: uploaded.`);
    } catch (error) {
      // Otherwise, it was paused or removed.
      if (upload.state !== 'active') return;
      show(upload, error.retry ? 'lost' : 'failed', error.message);
      say(`${upload.name}: ${error.message}`);
    }
  };
  const start = async (upload) => {
    show(upload, 'waiting', 'Waiting');
    while (!all('active').length && all('waiting').length) await run(all('waiting')[0]);
    if (!note.isConnected || all('waiting', 'active').length) return;
    if (all('lost', 'paused', 'failed').length) tell('Some files were not uploaded. Continue or remove them, then submit the post again.');
    else tell('The uploads have ended. Submit the post again.');
  };
  const discard = (upload) => {
    upload.state = 'removed';
    uploads.delete(upload.key);
    upload.item.remove();
  };
  const insert = (upload) => {
    upload.item = box.querySelector('template').content.firstElementChild.cloneNode(true);
    upload.item.querySelector('progress').setAttribute('aria-label', `Upload of ${upload.name}`);
    for (const name of upload.item.querySelectorAll('bdi')) name.textContent = upload.name;
    upload.onprogress = (sent) => progress(upload, sent);
    const [button, remove] = upload.item.querySelectorAll('button');
    button.addEventListener('click', () => {
      if (upload.state === 'absent') input.click();
      else if (upload.state !== 'active') start(upload);
      else {
        show(upload, 'paused', 'Paused');
        upload.stop();
      }
    });
    remove.addEventListener('click', () => {
      discard(upload);
      transfer.remove(upload);
      input.focus();
    });
    uploads.set(upload.key, upload);
    box.querySelector('ul').append(upload.item);
  };
  const choose = (files) => {
    for (const file of files) {
      const key = transfer.keyOf(file);
      const upload = uploads.get(key) ?? { key, name: file.name, size: file.size, sent: 0 };
      if (['waiting', 'active'].includes(upload.state)) continue;
      const isVideo = file.type.startsWith('video/') || /\.(mp4|m4v|mov|webm)$/i.test(file.name);
      upload.file = file;
      upload.id = null;
      upload.kind = isVideo ? 'video' : (kind?.value ?? 'image').replace('video', 'image');
      // One description does not fit several files.
      upload.alt = files.length === 1 ? description.value.trim() : '';
      upload.number = count += 1;
      if (!upload.item) insert(upload);
      start(upload);
    }
    input.value = '';
    description.value = '';
  };

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    choose([...input.files]);
  });
  // Otherwise, the post would be saved or published without the files that were chosen for it.
  composer?.addEventListener('submit', (event) => {
    choose([...input.files]);
    if (!all('waiting', 'active').length) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    tell('Nothing was saved yet, because files are still being uploaded.');
    (event.submitter ?? composer.lastElementChild).parentElement.before(note);
  }, true);
  for (const name of ['dragover', 'drop']) {
    document.addEventListener(name, (event) => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      box.closest('details')?.setAttribute('open', '');
      if (name === 'drop') choose([...event.dataTransfer.files]);
    });
  }
  window.addEventListener('online', () => all('lost').forEach(start));
  window.addEventListener('beforeunload', (event) => { if (all('waiting', 'active').length) event.preventDefault(); });
  for (const upload of transfer.interrupted()) {
    insert(upload);
    show(upload, 'absent', 'Choose the file again to continue.');
    transfer.find(upload).then(() => {
      const isOver = !upload.url || upload.id;
      if (isOver && upload.state === 'absent') discard(upload);
    }).catch((error) => {
      // The file was rejected.
      if (!upload.url && upload.state === 'absent') show(upload, 'failed', error.message);
    });
  }
  box.hidden = false;
  input.multiple = true;
})();
