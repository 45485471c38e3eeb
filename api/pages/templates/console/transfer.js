// Sends files to the server: an image with a form, a video in parts (tus 1.0). An upload of a video can be paused, and
// continues after a lost connection or a reload. An upload has `name`, `size`, `file`, `kind`, `alt`, `number` and
// `onprogress`; its `id` is set when the file is in the library, and `stop` ends the current request.
const transfer = (() => {
  'use strict';
  const { uploads: server, csrf } = document.querySelector('[data-uploads]').dataset;
  const PART = 8 * 1024 * 1024;
  const BYTES = 'application/offset+octet-stream';
  const SECONDS_BEFORE_RETRY = [0.5, 1, 3, 5, 10];
  const MAX_AGE = 86_400_000;
  const TUS = { 'Tus-Resumable': '1.0.0', 'X-CSRF-Token': csrf };
  const LOST = 'The connection was lost. Continue when it works again.';
  const GONE = [404, 410];
  const REJECTED = [413, 415];
  const failure = (message, retry, status) => Object.assign(new Error(message), { retry, status });

  // The URLs of unfinished uploads, by file.
  const prefix = `upload ${server} `;
  const keyOf = (file) => `${prefix}${file.size} ${file.lastModified} ${file.name}`;
  const setUrl = (upload, url) => {
    upload.url = url;
    try {
      if (url) localStorage.setItem(upload.key, JSON.stringify({ url, at: Date.now() }));
      else localStorage.removeItem(upload.key);
    } catch { /* Without a storage, an upload ends with the page. */ }
  };
  // Returns the uploads that a reload has interrupted.
  const interrupted = () => {
    const found = [];
    try {
      for (const key of Object.keys(localStorage).filter((one) => one.startsWith(prefix))) {
        const [size, , ...name] = key.slice(prefix.length).split(' ');
        const { url, at } = JSON.parse(localStorage.getItem(key));
        const upload = { key, url, kind: 'video', name: name.join(' '), size: Number(size), sent: 0 };
        if (Date.now() - at < MAX_AGE) found.push(upload);
        else setUrl(upload, null);
      }
    } catch { /* The storage is disabled, or has other content. */ }
    return found;
  };

  const reason = (text) => {
    try {
      const { message, fields } = JSON.parse(text).error;
      return fields ? Object.values(fields).flat().join(' ') : message;
    } catch {
      return text.slice(0, 300) || 'The file was not uploaded. Retry.';
    }
  };
  const request = (upload, method, url, headers, body) => new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    const { sent } = upload;
    xhr.open(method, url);
    for (const name of Object.keys(headers)) xhr.setRequestHeader(name, headers[name]);
    if (body) xhr.upload.onprogress = (event) => upload.onprogress(sent + event.loaded);
    else xhr.timeout = 60_000;
    xhr.onerror = () => reject(failure(LOST, true));
    xhr.ontimeout = xhr.onerror;
    xhr.onload = () => {
      const { status } = xhr;
      if (xhr.responseURL.includes('/sign-in')) reject(failure('Your session has ended. Reload the page and sign in.'));
      else if (status < 400) resolve(xhr);
      else reject(failure(reason(xhr.responseText), status >= 500 || [408, 409, 423, 429].includes(status), status));
    };
    upload.stop = () => { reject(failure('')); xhr.abort(); };
    xhr.send(body);
  });
  const wait = (upload, seconds) => new Promise((resolve, reject) => {
    upload.stop = () => reject(failure(''));
    setTimeout(resolve, seconds * 1000);
  });

  const read = (upload, response) => {
    upload.sent = Number(response.getResponseHeader('Upload-Offset'));
    upload.id = response.getResponseHeader('Crier-Media-Id');
    upload.onprogress(upload.sent);
  };
  // Reads how far the upload is. If its file was rejected, fails with the reason.
  const readStatus = async (upload) => {
    try {
      read(upload, await request(upload, 'HEAD', upload.url, TUS));
    } catch (error) {
      if (!REJECTED.includes(error.status)) throw error;
      await readReason(upload);
      throw error;
    }
  };
  // A response to HEAD has no text. One to PATCH has.
  const readReason = async (upload) => {
    try {
      await request(upload, 'PATCH', upload.url, { ...TUS, 'Upload-Offset': upload.size, 'Content-Type': BYTES });
    } catch (error) {
      if (REJECTED.includes(error.status)) setUrl(upload, null);
      throw error;
    }
  };
  // Finds where to continue. If the server has deleted the upload, it begins again.
  const find = async (upload) => {
    try {
      await readStatus(upload);
    } catch (error) {
      if (!GONE.includes(error.status)) throw error;
      setUrl(upload, null);
    }
  };
  const create = async (upload) => {
    const base64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
    const texts = { filename: upload.name, asset_type: 'video', ...(upload.alt && { alt_text: upload.alt }) };
    const metadata = Object.keys(texts).map((name) => `${name} ${base64(texts[name])}`).join(',');
    const headers = { ...TUS, 'Upload-Length': upload.size, 'Upload-Metadata': metadata };
    const response = await request(upload, 'POST', server, headers);
    setUrl(upload, `${server}/${response.getResponseHeader('Location').split('/').pop()}`);
    upload.sent = 0;
  };
  const sendPart = async (upload) => {
    const { sent } = upload;
    const headers = { ...TUS, 'Upload-Offset': sent, 'Content-Type': BYTES };
    try {
      read(upload, await request(upload, 'PATCH', upload.url, headers, upload.file.slice(sent, sent + PART)));
    } catch (error) {
      if (REJECTED.includes(error.status)) setUrl(upload, null);
      throw Object.assign(error, { retry: error.retry || GONE.includes(error.status) });
    }
    if (upload.sent <= sent && !upload.id) throw failure(LOST, true);
  };
  // Waits until the server has checked and stored a file of which it has all bytes.
  const awaitAsset = async (upload) => {
    await wait(upload, 2);
    try {
      await readStatus(upload);
    } catch (error) {
      if (!GONE.includes(error.status)) throw error;
      setUrl(upload, null);
      throw failure('The server has lost a part of this file. Upload it again.');
    }
  };
  const sendVideo = async (upload) => {
    for (let failures = 0; !upload.id;) {
      try {
        if (upload.url) await find(upload);
        if (!upload.url) await create(upload);
        for (; !upload.id; failures = 0) await (upload.sent < upload.size ? sendPart : awaitAsset)(upload);
      } catch (error) {
        if (!error.retry || failures === SECONDS_BEFORE_RETRY.length) throw error;
        await wait(upload, SECONDS_BEFORE_RETRY[failures]);
        failures += 1;
      }
    }
    setUrl(upload, null);
  };
  const sendImage = async (upload, form) => {
    const url = new URL(form.action);
    url.searchParams.set('_key', `${url.searchParams.get('_key')}-${upload.number}`);
    const body = new FormData();
    body.append('alt_text', upload.alt);
    body.append('asset_type', upload.kind);
    body.append('file', upload.file);
    upload.id = (await request(upload, 'POST', url, { 'X-Requested-With': 'fetch' }, body)).responseText;
  };
  // Deletes what the server has of an upload. If that fails, the server deletes it when it expires.
  const remove = (upload) => {
    upload.stop?.();
    if (upload.url) request({}, 'DELETE', upload.url, TUS).catch(() => {});
    setUrl(upload, null);
  };
  return { keyOf, interrupted, find, sendVideo, sendImage, remove };
})();
