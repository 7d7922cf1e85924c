"use strict";(self.rspackChunkskyward_nb=self.rspackChunkskyward_nb||[]).push([[93],{856(o,r,e){var t=e(601),a=e.n(t),n=e(314),s=(e.n(n))()(a());s.push([o.id,`.sky-panel {
  box-sizing: border-box;
  min-width: 220px;
  overflow: auto;
  padding: 8px 12px 16px;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size1);
  line-height: 1.45;
}

.sky-panel [hidden] {
  display: none;
}

.sky-heading {
  margin: 0 0 8px;
  font-size: var(--jp-ui-font-size2);
  font-weight: 600;
}

.sky-note {
  margin-bottom: 12px;
  color: var(--jp-ui-font-color2);
  overflow-wrap: anywhere;
}

.sky-pool {
  margin-bottom: 10px;
  padding: 8px 10px 10px;
  border: 1px solid var(--jp-border-color2);
  border-radius: 6px;
  content-visibility: auto;
  contain-intrinsic-size: auto 150px;
}

.sky-head {
  display: flex;
  align-items: center;
  gap: 7px;
}

.sky-title {
  margin: 0;
  min-width: 0;
  font-size: var(--jp-ui-font-size1);
  font-weight: 600;
  overflow-wrap: anywhere;
}

.sky-dot {
  flex: none;
  width: 9px;
  height: 9px;
  border-radius: 50%;
  background: var(--jp-border-color1);
}

[data-state='running'] > .sky-head > .sky-dot {
  background: var(--jp-success-color1);
}

[data-state='lost'] > .sky-head > .sky-dot {
  background: var(--jp-error-color1);
}

.sky-spec,
.sky-where {
  color: var(--jp-ui-font-color2);
  overflow-wrap: anywhere;
}

.sky-doing {
  margin-top: 4px;
}

.sky-progress {
  width: 100%;
  height: 6px;
  margin: 4px 0 0;
  accent-color: var(--jp-brand-color1);
}

.sky-pool > .sky-words,
.sky-gpus {
  color: var(--jp-ui-font-color2);
  font-variant-numeric: tabular-nums;
}

.sky-lost,
.sky-cost.sky-trouble {
  color: var(--jp-error-color1);
}

.sky-ranks {
  display: flex;
  flex-wrap: wrap;
  gap: 3px;
  margin: 7px 0 0;
  padding: 0;
  max-height: 140px;
  overflow: auto;
  list-style: none;
}

.sky-chip {
  box-sizing: border-box;
  min-width: 22px;
  padding: 0 4px;
  border-radius: 3px;
  background: var(--jp-layout-color3);
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size0);
  line-height: 17px;
  text-align: center;
  cursor: default;
}

.sky-chip[data-state='running'] {
  background: var(--jp-success-color0);
  color: white;
}

.sky-chip[data-state='lost'] {
  background: var(--jp-error-color0);
  color: white;
  text-decoration: line-through;
}

.sky-actions {
  display: flex;
  flex-wrap: wrap;
  gap: 4px;
  margin-top: 9px;
}

.sky-button {
  padding: 2px 8px;
  border: 1px solid var(--jp-border-color1);
  border-radius: 4px;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font: inherit;
  font-size: 12px;
  cursor: pointer;
}

.sky-button:hover:not(:disabled) {
  background: var(--jp-layout-color2);
}

.sky-button:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: 1px;
}

.sky-ranks:focus-visible,
.sky-answer > :focus-visible {
  outline: 2px solid var(--jp-brand-color1);
}

.sky-button:disabled {
  border-color: var(--jp-border-color2);
  color: var(--jp-ui-font-color3);
  cursor: default;
}

.sky-danger:hover:not(:disabled) {
  border-color: var(--jp-error-color1);
  color: var(--jp-error-color1);
}

.sky-said {
  position: relative;
  margin-top: 8px;
  padding: 6px 26px 6px 8px;
  border-left: 3px solid var(--jp-brand-color1);
  background: var(--jp-layout-color2);
}

.sky-said.sky-trouble {
  border-left-color: var(--jp-error-color1);
}

.sky-said > .sky-button {
  position: absolute;
  top: 3px;
  right: 3px;
  padding: 0 6px;
  border: 0;
  background: transparent;
}

.sky-answer > pre {
  margin: 0;
  max-height: 280px;
  overflow: auto;
  color: inherit;
  font-family: var(--jp-code-font-family);
  font-size: 12px;
  white-space: pre-wrap;
  overflow-wrap: anywhere;
}

.sky-new > summary {
  padding: 4px 0;
  cursor: pointer;
}

.sky-form {
  display: grid;
  gap: 6px;
  padding-top: 4px;
}

.sky-field {
  display: grid;
  grid-template-columns: 8.5em 1fr;
  align-items: center;
}

.sky-input {
  box-sizing: border-box;
  width: 100%;
  min-width: 0;
  padding: 2px 6px;
  border: 1px solid var(--jp-border-color1);
  border-radius: 3px;
  background: var(--jp-input-background, var(--jp-layout-color1));
  color: var(--jp-ui-font-color1);
  font: inherit;
}

.sky-line {
  padding: 4px 6px;
  background: var(--jp-layout-color2);
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-code-font-family);
  overflow-wrap: anywhere;
}

.sky-form > .sky-button {
  justify-self: start;
}

.sky-status {
  padding: 0 4px;
  border: 0;
  background: transparent;
  color: var(--jp-ui-font-color1);
  font: inherit;
  font-size: var(--jp-ui-font-size1);
  cursor: pointer;
}

.sky-status.sky-trouble {
  color: var(--jp-error-color1);
  font-weight: 600;
}
`,""]),e.d(r,{},{A:s})},967(o,r,e){var t=e(601),a=e.n(t),n=e(314),s=(e.n(n))()(a());s.push([o.id,`.sky-record {
  box-sizing: border-box;
  max-width: 960px;
  border: 1px solid var(--jp-border-color2);
  border-radius: 6px;
  overflow: hidden;
  color: var(--jp-content-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: 13px;
  font-variant-numeric: tabular-nums;
  line-height: 1.45;
}

.sky-record [hidden] {
  display: none;
}

/* Beside a run that goes on stand stock widgets: one of the two is seen. */
.jp-OutputArea-child:has(
    > .sky-record[data-beside='widgets'][data-is='kept']
  ):has(+ .jp-OutputArea-child .sky-live),
.jp-OutputArea-child:has(
    > .sky-record[data-beside='widgets']:not([data-is='kept'])
  )
  + .jp-OutputArea-child:has(.sky-live),
.jp-OutputArea-child:has(> .sky-record[data-beside='widgets'])
  + .jp-OutputArea-child:not(:has(.sky-live)):not(:has([data-mime-type])) {
  display: none;
}

.sky-bar {
  display: flex;
  flex-wrap: wrap;
  align-items: baseline;
  gap: 2px 8px;
  padding: 6px 8px 6px 12px;
  background: var(--jp-layout-color2);
}

.sky-bar > .sky-words {
  min-width: 0;
  flex: 1 1 120px;
  color: inherit;
  overflow-wrap: anywhere;
}

.sky-about,
.sky-time,
.sky-small,
.sky-at,
.sky-count {
  color: var(--jp-content-font-color2);
}

.sky-time {
  margin-left: auto;
  text-align: right;
}

.sky-state {
  color: #2f81f7;
}

.sky-record[data-state='finished'] .sky-state {
  color: #2da44e;
}

.sky-record[data-state='failed'] .sky-state {
  color: #d1242f;
}

.sky-record[data-state='interrupted'] .sky-state {
  color: #bf8700;
}

.sky-button.sky-fold {
  border: 0;
  background: transparent;
}

.sky-steps,
.sky-section,
.sky-small {
  padding: 5px 12px;
  border-top: 1px solid var(--jp-border-color2);
  overflow-wrap: anywhere;
}

.sky-steps:empty {
  display: none;
}

.sky-section {
  white-space: pre-wrap;
}

.sky-section.sky-note {
  margin: 0;
  color: inherit;
}

.sky-small {
  font-size: 12px;
}

.sky-small summary {
  cursor: pointer;
}

.sky-table {
  container-type: inline-size;
  max-height: 300px;
  overflow: auto;
}

.sky-record table,
.sky-values table {
  margin: 4px 0;
  border-collapse: collapse;
  font-size: inherit;
  text-align: left;
}

.sky-record .sky-table td,
.sky-record .sky-table th,
.sky-small td,
.sky-values td,
.sky-values th {
  padding: 2px 9px;
  border: 0;
  text-align: left;
  vertical-align: top;
  white-space: nowrap;
}

.sky-record .sky-table tr > :first-child {
  padding-left: 12px;
}

.sky-table thead th,
.sky-values th {
  color: var(--jp-content-font-color2);
  font-size: 12px;
  font-weight: 500;
}

.sky-table tbody th {
  font-weight: inherit;
}

.sky-table tr[data-state='failed'] th,
.sky-table tr[data-state='lost'] th {
  color: var(--jp-error-color1);
}

.sky-loop {
  display: flex;
  align-items: center;
  gap: 9px;
}

.sky-gauge {
  flex: none;
  width: 140px;
  height: 8px;
  border-radius: 4px;
  background: rgb(128 128 128 / 25%);
  overflow: hidden;
}

@container (max-width: 480px) {
  .sky-gauge {
    width: 60px;
  }
}

.sky-fill {
  height: 100%;
  background: #2f81f7;
}

.sky-fill[data-state='done'] {
  background: #2da44e;
}

.sky-fill[data-state='failed'],
.sky-fill[data-state='lost'] {
  background: #d1242f;
}

.sky-curves {
  display: flex;
  flex-wrap: wrap;
  gap: 6px 20px;
  padding: 6px 12px;
  border-top: 1px solid var(--jp-border-color2);
}

.sky-curve {
  width: 440px;
  max-width: 100%;
  margin: 0;
}

.sky-curve figcaption {
  display: flex;
  align-items: baseline;
  gap: 8px;
}

.sky-curve svg {
  display: block;
  width: 100%;
  height: auto;
  touch-action: pan-y;
}

.sky-curve svg:focus-visible,
.sky-out:focus-visible,
.sky-table:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -2px;
}

.sky-curve text {
  fill: var(--jp-content-font-color2);
  font-size: 11px;
}

.sky-curve path {
  fill: none;
  stroke-linejoin: round;
}

.sky-curve .sky-grid {
  stroke: rgb(128 128 128 / 30%);
}

.sky-curve .sky-mean {
  stroke: var(--jp-content-font-color1);
  stroke-width: 2;
}

.sky-curve .sky-band {
  fill: var(--jp-content-font-color1);
  fill-opacity: 0.18;
}

.sky-curve .sky-cursor {
  stroke: var(--jp-content-font-color1);
  stroke-dasharray: 3 3;
}

.sky-at {
  min-height: 1.45em;
  font-size: 12px;
}

.sky-at b {
  color: var(--jp-content-font-color1);
}

.sky-output {
  border-top: 1px solid var(--jp-border-color2);
}

.sky-tools {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  gap: 4px 8px;
  padding: 6px 12px;
}

.sky-tools > .sky-input {
  flex: 1;
  min-width: 120px;
  max-width: 240px;
  margin-left: auto;
}

.sky-choice {
  display: flex;
  flex-wrap: wrap;
  gap: 2px;
  max-height: 84px;
  overflow: auto;
}

.sky-choice > .sky-button[aria-pressed='true'] {
  border-color: var(--jp-brand-color1);
  background: var(--jp-layout-color2);
  font-weight: 600;
}

.sky-curve .sky-button {
  padding: 0 6px;
  font-size: 11px;
}

.sky-curve .sky-button[aria-pressed='true'] {
  border-color: var(--jp-brand-color1);
}

.sky-choice > .sky-button[data-state='failed'] {
  border-color: var(--jp-error-color1);
  color: var(--jp-error-color1);
}

.sky-choice > .sky-button[data-state='failed']::after {
  content: ' ●';
}

.sky-out {
  display: flex;
  flex-direction: column-reverse;
  max-height: 32em;
  padding: 4px 12px 8px;
  overflow: auto;
  color: var(--jp-content-font-color1);
  font-family: var(--jp-code-font-family);
  font-size: 12.5px;
}

.sky-out.sky-out-down {
  display: block;
  height: 32em;
}

.sky-out:has(.sky-figure) {
  max-height: 64em;
}

.sky-out > div {
  min-width: 0;
}

.sky-block {
  content-visibility: auto;
}

.sky-row {
  min-height: 18px;
  line-height: 18px;
  white-space: pre-wrap;
  overflow-wrap: anywhere;
}

.sky-row > b,
.sky-shown > b {
  color: #8957e5;
  color: color-mix(in srgb, #8957e5 70%, currentcolor);
  font-weight: 400;
}

.sky-of-aside {
  color: #b35900;
  color: color-mix(in srgb, #b35900 70%, currentcolor);
}

.sky-grid {
  display: grid;
  grid-template-columns: repeat(auto-fit, minmax(min(320px, 100%), 1fr));
  gap: 4px 12px;
}

.sky-grid:has(> :nth-child(5)) {
  grid-template-columns: repeat(auto-fill, minmax(min(200px, 100%), 1fr));
}

.sky-grid > * {
  min-width: 0;
}

/* What a rank displayed stays in its box. */
.sky-figure {
  contain: content;
  overflow-x: auto;
}

.sky-figure img {
  max-width: 100%;
}

.sky-frame {
  width: 100%;
  height: 420px;
  border: 1px solid var(--jp-border-color2);
  background: white;
}

.sky-end {
  height: 1px;
}

.sky-log > .sky-actions,
.sky-log > .sky-note {
  margin: 0;
  padding: 0 12px 4px;
}

.sky-values {
  overflow-x: auto;
  font-size: 12px;
}

/* Marks in notebooks. */
.jp-Cell.sky-on-pool .jp-InputArea-prompt {
  border-left: 3px solid var(--jp-brand-color2);
}

.sky-failed-line {
  background: color-mix(in srgb, var(--jp-error-color1) 16%, transparent);
  box-shadow: inset 3px 0 var(--jp-error-color1);
}

.lm-TabBar-tab[data-sky-progress]::before {
  padding-right: 5px;
  color: var(--jp-brand-color1);
  content: attr(data-sky-progress);
  font-variant-numeric: tabular-nums;
}

/* A record of a version that is not known here: its text stands in place of all else. */
.sky-unknown > :not(.sky-plain) {
  display: none;
}

.sky-record > .sky-plain {
  margin: 0;
  padding: 4px 8px;
  white-space: pre-wrap;
}
`,""]),e.d(r,{},{A:s})},314(o){o.exports=function(o){var r=[];return r.toString=function(){return this.map(function(r){var e="",t=void 0!==r[5];return r[4]&&(e+="@supports (".concat(r[4],") {")),r[2]&&(e+="@media ".concat(r[2]," {")),t&&(e+="@layer".concat(r[5].length>0?" ".concat(r[5]):""," {")),e+=o(r),t&&(e+="}"),r[2]&&(e+="}"),r[4]&&(e+="}"),e}).join("")},r.i=function(o,e,t,a,n){"string"==typeof o&&(o=[[null,o,void 0]]);var s={};if(t)for(var i=0;i<this.length;i++){var p=this[i][0];null!=p&&(s[p]=!0)}for(var l=0;l<o.length;l++){var d=[].concat(o[l]);t&&s[d[0]]||(void 0!==n&&(void 0===d[5]||(d[1]="@layer".concat(d[5].length>0?" ".concat(d[5]):""," {").concat(d[1],"}")),d[5]=n),e&&(d[2]&&(d[1]="@media ".concat(d[2]," {").concat(d[1],"}")),d[2]=e),a&&(d[4]?(d[1]="@supports (".concat(d[4],") {").concat(d[1],"}"),d[4]=a):d[4]="".concat(a)),r.push(d))}},r}},601(o){o.exports=function(o){return o[1]}},72(o){var r=[];function e(o){for(var e=-1,t=0;t<r.length;t++)if(r[t].identifier===o){e=t;break}return e}function t(o,t){for(var a={},n=[],s=0;s<o.length;s++){var i=o[s],p=t.base?i[0]+t.base:i[0],l=a[p]||0,d="".concat(p," ").concat(l);a[p]=l+1;var c=e(d),u={css:i[1],media:i[2],sourceMap:i[3],supports:i[4],layer:i[5]};if(-1!==c)r[c].references++,r[c].updater(u);else{var y=function(o,r){var e=r.domAPI(r);return e.update(o),function(r){r?(r.css!==o.css||r.media!==o.media||r.sourceMap!==o.sourceMap||r.supports!==o.supports||r.layer!==o.layer)&&e.update(o=r):e.remove()}}(u,t);t.byIndex=s,r.splice(s,0,{identifier:d,updater:y,references:1})}n.push(d)}return n}o.exports=function(o,a){var n=t(o=o||[],a=a||{});return function(o){o=o||[];for(var s=0;s<n.length;s++){var i=e(n[s]);r[i].references--}for(var p=t(o,a),l=0;l<n.length;l++){var d=e(n[l]);0===r[d].references&&(r[d].updater(),r.splice(d,1))}n=p}}},659(o){var r={};o.exports=function(o,e){var t=function(o){if(void 0===r[o]){var e=document.querySelector(o);if(window.HTMLIFrameElement&&e instanceof window.HTMLIFrameElement)try{e=e.contentDocument.head}catch(o){e=null}r[o]=e}return r[o]}(o);if(!t)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");t.appendChild(e)}},540(o){o.exports=function(o){var r=document.createElement("style");return o.setAttributes(r,o.attributes),o.insert(r,o.options),r}},56(o,r,e){o.exports=function(o){var r=e.nc;r&&o.setAttribute("nonce",r)}},206(o){o.exports=function(o){if("u"<typeof document)return{update:function(){},remove:function(){}};var r=o.insertStyleElement(o);return{update:function(e){var t,a,n;t="",e.supports&&(t+="@supports (".concat(e.supports,") {")),e.media&&(t+="@media ".concat(e.media," {")),(a=void 0!==e.layer)&&(t+="@layer".concat(e.layer.length>0?" ".concat(e.layer):""," {")),t+=e.css,a&&(t+="}"),e.media&&(t+="}"),e.supports&&(t+="}"),(n=e.sourceMap)&&"u">typeof btoa&&(t+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(n))))," */")),o.styleTagTransform(t,r,o.options)},remove:function(){var o;null===(o=r).parentNode||o.parentNode.removeChild(o)}}}},113(o){o.exports=function(o,r){if(r.styleSheet)r.styleSheet.cssText=o;else{for(;r.firstChild;)r.removeChild(r.firstChild);r.appendChild(document.createTextNode(o))}}},492(o,r,e){var t=e(72),a=e.n(t),n=e(206),s=e.n(n),i=e(659),p=e.n(i),l=e(56),d=e.n(l),c=e(540),u=e.n(c),y=e(113),f=e.n(y),k=e(856),x={};x.styleTagTransform=f(),x.setAttributes=d(),x.insert=p().bind(null,"head"),x.domAPI=s(),x.insertStyleElement=u(),a()(k.A,x),k.A&&k.A.locals&&k.A.locals;var h=e(967),g={};g.styleTagTransform=f(),g.setAttributes=d(),g.insert=p().bind(null,"head"),g.domAPI=s(),g.insertStyleElement=u(),a()(h.A,g),h.A&&h.A.locals&&h.A.locals}}]);