// Chooses the cover of a video by a position in the video, and names the video. If a post has several videos, the cover
// is that of the first one.
(() => {
  'use strict';
  const form = document.querySelector('[data-composer]');
  // An account with its own images and videos does not publish those of the post.
  const firstVideo = (seconds) => {
    const account = seconds.name.split('options.')[0];
    const field = form.elements[`${account}own_media`] ? `${account}media` : 'media';
    const videos = [...form.querySelectorAll('[data-video]')].filter((input) => input.name === field);
    return videos.find((input) => input.checked || input.type === 'hidden');
  };
  const showAll = () => {
    for (const box of form.querySelectorAll('.scrub')) {
      const [video, range, text] = box.children;
      const seconds = box.parentElement.querySelector('[type=number]');
      const source = firstVideo(seconds);
      box.hidden = !source;
      if (!source || video.getAttribute('src') === source.dataset.video) continue;
      const label = source.dataset.label || source.getAttribute('aria-label');
      const seek = () => {
        video.currentTime = Number(seconds.value);
        text.textContent = `Cover of \u2068${label}\u2069${seconds.value ? ` at ${seconds.value} s` : ''}`;
      };
      video.onloadedmetadata = () => {
        range.max = video.duration;
        range.value = Number(seconds.value);
        seek();
      };
      range.oninput = () => { seconds.value = range.value; seek(); };
      seconds.oninput = () => { range.value = Number(seconds.value); seek(); };
      video.src = source.dataset.video;
    }
  };
  form.addEventListener('input', (event) => { if (/(^|\.)media$/.test(event.target.name)) showAll(); });
  showAll();
})();
