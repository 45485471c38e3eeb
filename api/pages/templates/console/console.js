// Optional enhancements.
(() => {
  'use strict';
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const live = document.getElementById('live');
  const say = (text) => { if (live) live.textContent = text; };

  // Times are in the brand's time zone. If that of the browser differs, the title shows the time in it.
  const zone = document.body.dataset.zone;
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const titles = () => {
    if (!zone || !own || zone === own) return;
    const format = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
    for (const time of all('time[data-local]')) {
      time.title = `${format.format(new Date(time.dateTime))} in your time zone (${own}). Shown in ${zone}.`;
    }
  };
  titles();

  // Sends a form and returns the response as text. A redirect means that the session has ended.
  const send = async (url, body, signal) => {
    const response = await fetch(url, { method: 'POST', body, signal, headers: { 'X-Requested-With': 'fetch' } });
    if (response.redirected) throw new Error('Your session has ended. Reload the page and sign in.');
    const text = await response.text();
    if (!response.ok) throw new Error(text.slice(0, 300));
    return text;
  };

  // Shows what the settings of a feed do while they are changed.
  const settings = document.querySelector('form[data-preview]');
  let pause;
  let last;
  settings?.addEventListener('input', () => {
    clearTimeout(pause);
    pause = setTimeout(async () => {
      last?.abort();
      last = new AbortController();
      try {
        const previews = document.getElementById('previews');
        previews.innerHTML = await send(settings.dataset.preview, new URLSearchParams(new FormData(settings)), last.signal);
        previews.closest('section').hidden = false;
      } catch { /* The button of the preview shows what is wrong. */ }
    }, 600);
  });

  // While something is published, sent or imported, reloads the page at increasing intervals.
  const watch = (seconds) => {
    if (!document.querySelector('[data-moving]')) return;
    setTimeout(async () => {
      const main = document.getElementById('main');
      try {
        // Do not replace content that the user has opened or is filling in.
        if (!changed.size && !main.querySelector('details[open], form :focus')) {
          const response = await fetch(location.pathname);
          if (!response.ok || response.redirected) return;
          const page = new DOMParser().parseFromString(await response.text(), 'text/html');
          const { href } = document.activeElement;
          main.replaceChildren(...page.getElementById('main').childNodes);
          if (href && !document.activeElement.href) {
            all('a', main).find((link) => link.href === href)?.focus({ preventScroll: true });
          }
          titles();
          if (!document.querySelector('[data-moving]')) say('Finished. The page shows the result.');
        }
      } catch { /* Retried at the next interval. */ }
      watch(Math.min(seconds * 1.5, 30));
    }, seconds * 1000);
  };
  watch(2);

  // Selects the browser's time zone for a new brand.
  for (const select of all('form[data-guess-zone] select')) {
    if ([...select.options].some((option) => option.value === own)) select.value = own;
  }

  // Filters apply immediately.
  for (const form of all('form[data-autosubmit]')) {
    form.addEventListener('change', () => form.requestSubmit());
    for (const button of all('button', form)) button.hidden = true;
  }

  // Prevents sending a form twice. Returning to the page, or staying on it, enables it again.
  document.addEventListener('submit', (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== 'post') return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = '1';
    event.submitter?.setAttribute('aria-disabled', 'true');
  });
  const enable = () => {
    for (const form of all('form[data-sent]')) delete form.dataset.sent;
    for (const button of all('button[aria-disabled]')) button.removeAttribute('aria-disabled');
  };
  addEventListener('pageshow', enable);

  // Menus and confirmations close on Escape and on a click outside.
  const close = (details, focus) => {
    details.open = false;
    if (focus) details.querySelector('summary').focus();
  };
  document.addEventListener('click', ({ target }) => {
    for (const details of all('details[data-close][open]')) if (!details.contains(target)) close(details);
  });
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    for (const details of all('details[data-close][open]')) close(details, details.contains(document.activeElement));
  });

  for (const button of all('[data-copy]')) {
    button.hidden = false;
    button.addEventListener('click', async () => {
      const source = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(source.textContent.trim());
        button.textContent = 'Copied';
        say('Copied.');
      } catch {
        getSelection().selectAllChildren(source);
        say('The text is selected. Copy it with the keyboard.');
      }
    });
  }

  // "All" disables the other boxes of its group.
  for (const box of all('input[data-all]')) {
    const others = all('input[type=checkbox]', box.closest('fieldset')).filter((other) => other !== box);
    const apply = () => { for (const other of others) other.disabled = box.checked; };
    box.addEventListener('change', apply);
    apply();
  }

  // "Select all" checks the boxes of a list of posts. The number of checked boxes is shown.
  for (const box of all('input[data-select-all]')) {
    const { form } = box;
    const others = all('input[name=ids]', form);
    const show = () => {
      const count = others.filter((other) => other.checked).length;
      box.checked = count === others.length;
      box.indeterminate = count > 0 && !box.checked;
      form.querySelector('[data-selected]').textContent = count ? `${count} selected` : '';
    };
    form.addEventListener('change', ({ target }) => {
      if (target === box) for (const other of others) other.checked = box.checked;
      if (target === box || target.name === 'ids') show();
    });
    // A browser may restore the boxes when it returns to the page.
    addEventListener('pageshow', show);
    show();
  }

  document.getElementById('errors')?.focus();

  const composer = document.querySelector('form[data-composer]');
  if (composer) compose(composer);

  // Asks before leaving with unsaved changes, except those of the form that is submitted.
  const changed = new Set(all('[data-changed]'));
  document.addEventListener('input', ({ target }) => {
    if (target.form?.method === 'post' && !/^(ids|all|_snippet)$/.test(target.name)) changed.add(composer ?? target.form);
  });
  document.addEventListener('submit', ({ target }) => changed.delete(target));
  addEventListener('beforeunload', (event) => {
    if (!changed.size) return;
    event.preventDefault();
    enable();
  });

  all('[data-calendar]').forEach(drag);

  function compose(form) {
    const text = form.elements.namedItem('content');
    const count = form.querySelector('[data-count]');
    const panel = document.getElementById('check');
    const segmenter = Intl.Segmenter ? new Intl.Segmenter() : null;
    const length = (value) => (segmenter && value.length < 5000 ? [...segmenter.segment(value)].length : [...value].length);
    const show = (area) => {
      const place = area.closest('.field').querySelector('[data-count]');
      if (!place) return;
      const characters = length(area.value.normalize('NFC'));
      place.textContent = `${characters.toLocaleString('en')} character${characters === 1 ? '' : 's'}`;
    };
    const showAll = () => all('textarea', form).forEach(show);
    form.addEventListener('input', ({ target }) => { if (target.matches('textarea')) show(target); });
    showAll();

    // Reading the page of a link card takes longer than the check, so it has a request of its own.
    const cards = new Map();
    const showCards = async (body, signal) => {
      for (const slot of all('[data-card]', panel)) {
        const { card, key } = slot.dataset;
        try {
          if (!cards.has(key)) cards.set(key, await send(card, body, signal));
          slot.innerHTML = cards.get(key);
        } catch { /* The link stays visible. */ }
      }
    };
    showCards(new URLSearchParams(new FormData(form)));

    let timer;
    let running;
    const check = async () => {
      running?.abort();
      running = new AbortController();
      panel.setAttribute('aria-busy', 'true');
      try {
        const { signal } = running;
        const body = new URLSearchParams(new FormData(form));
        panel.innerHTML = await send(form.dataset.composer, body, signal);
        // Problems of images and videos are also shown beside these.
        const problems = all('[data-about]', panel).map((problem) => problem.cloneNode(true));
        for (const problem of problems) problem.prepend(`${problem.dataset.about}: `);
        document.getElementById('media-check').replaceChildren(...problems);
        panel.removeAttribute('aria-busy');
        showCards(body, signal);
      } catch (error) {
        if (error.name !== 'AbortError') panel.removeAttribute('aria-busy');
      }
    };
    const checkLater = () => {
      clearTimeout(timer);
      timer = setTimeout(check, 600);
    };
    form.addEventListener('input', ({ target }) => {
      if (target.form === form && target.name !== '_snippet') checkLater();
    });

    // Inserts the chosen snippet at the cursor of the text that was edited last, or at the end of the post's text.
    let edited;
    form.addEventListener('focusin', ({ target }) => { if (target.matches('textarea')) edited = target; });
    const insert = async (snippets) => {
      const field = edited ?? text;
      try {
        const response = await fetch(`${snippets}/${form.elements.namedItem('_snippet').value}/text`);
        if (!response.ok || response.redirected) throw new Error();
        const snippet = await response.text();
        const end = field.value.length;
        field.setRangeText(snippet, edited ? field.selectionStart : end, edited ? field.selectionEnd : end, 'end');
        field.dispatchEvent(new Event('input', { bubbles: true }));
        field.focus();
      } catch {
        count.textContent = 'The snippet was not inserted. Reload the page and retry.';
        say(count.textContent);
      }
    };
    // The buttons of the thread send the form. Of the page in the response, the script shows only the text and the parts.
    const changeThread = async (button) => {
      const thread = document.getElementById('f-thread');
      const body = new URLSearchParams(new FormData(form));
      body.append('_action', button.value);
      // The response replaces what is typed meanwhile.
      form.inert = true;
      const html = await send(form.action, body, AbortSignal.timeout(15e3)).catch(() => '');
      form.inert = false;
      const page = new DOMParser().parseFromString(html, 'text/html');
      if (!page.getElementById('f-thread')) return form.requestSubmit(button);
      text.value = page.getElementById('f-content').value;
      const focused = page.querySelector('#f-thread [autofocus]');
      focused?.removeAttribute('autofocus');
      thread.replaceChildren(...page.getElementById('f-thread').childNodes);
      edited = undefined;
      showAll();
      (focused ?? thread).focus();
      thread.dispatchEvent(new Event('input', { bubbles: true }));
    };
    form.addEventListener('click', (event) => {
      const button = event.target.closest('button');
      if (button && 'thread' in button.dataset) {
        event.preventDefault();
        changeThread(button);
      }
      if (button?.dataset.insert) {
        event.preventDefault();
        insert(button.dataset.insert);
      }
      if (button?.name === '_action' && button.value === 'check') {
        event.preventDefault();
        check();
      }
      // Moves an image to the front without a request.
      if (button?.name === '_action' && button.value.startsWith('first:')) {
        event.preventDefault();
        const tile = button.closest('.pick');
        tile.parentElement.prepend(tile);
        tile.querySelector('input').checked = true;
        button.focus();
        say('The image is now first.');
        checkLater();
      }
    });

    // Suggestions continue the list of labels.
    const labels = form.elements.namedItem('labels');
    const suggested = all('option', labels.list).map((option) => [option, option.value]);
    labels.addEventListener('input', () => {
      const before = labels.value.slice(0, labels.value.lastIndexOf(',') + 1);
      for (const [option, label] of suggested) option.value = before ? `${before} ${label}` : label;
    });
  }

  function drag(calendar) {
    let moved = null;
    calendar.addEventListener('dragstart', (event) => {
      moved = event.target.closest('[data-post]');
      if (!moved) return;
      event.dataTransfer.effectAllowed = 'move';
      event.dataTransfer.setData('text/plain', moved.dataset.post);
    });
    const cellOf = ({ target }) => moved && target.closest('[data-date]');
    calendar.addEventListener('dragover', (event) => {
      const cell = cellOf(event);
      if (!cell) return;
      event.preventDefault();
      for (const other of all('.over-drop', calendar)) if (other !== cell) other.classList.remove('over-drop');
      cell.classList.add('over-drop');
    });
    calendar.addEventListener('dragend', () => {
      for (const cell of all('.over-drop', calendar)) cell.classList.remove('over-drop');
      moved = null;
    });
    calendar.addEventListener('drop', async (event) => {
      const cell = cellOf(event);
      const entry = moved;
      if (!cell) return;
      event.preventDefault();
      const from = entry.closest('[data-date]');
      if (from === cell) return;
      const { csrf, key, move } = calendar.dataset;
      const body = new URLSearchParams({ _csrf: csrf, _key: `${key}-${entry.dataset.post}-${Date.now()}`, date: cell.dataset.date });
      const item = entry.closest('li');
      const status = document.getElementById('move-status');
      const tell = (text, tone) => {
        status.className = `notice notice-${tone}`;
        status.textContent = text;
        if (tone === 'bad') status.scrollIntoView({ block: 'nearest' });
      };
      cell.querySelector('.entries').append(item);
      tell('Moving the post …', 'info');
      try {
        tell(await send(`${move}/${entry.dataset.post}/move`, body), 'good');
      } catch (error) {
        from.querySelector('.entries').append(item);
        tell(error.message || 'The post was not moved. Reload the page and retry.', 'bad');
      }
    });
  }
})();
