"use strict";(self.rspackChunkskyward_nb=self.rspackChunkskyward_nb||[]).push([[263],{865(r,o,e){var t=e(403),n=e.n(t),a=e(644),i=(e.n(a))()(n());i.push([r.id,`.sky-panel {
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

.sky-words,
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

.sky-said > pre {
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
`,""]),e.d(o,{},{A:i})},644(r){r.exports=function(r){var o=[];return o.toString=function(){return this.map(function(o){var e="",t=void 0!==o[5];return o[4]&&(e+="@supports (".concat(o[4],") {")),o[2]&&(e+="@media ".concat(o[2]," {")),t&&(e+="@layer".concat(o[5].length>0?" ".concat(o[5]):""," {")),e+=r(o),t&&(e+="}"),o[2]&&(e+="}"),o[4]&&(e+="}"),e}).join("")},o.i=function(r,e,t,n,a){"string"==typeof r&&(r=[[null,r,void 0]]);var i={};if(t)for(var s=0;s<this.length;s++){var p=this[s][0];null!=p&&(i[p]=!0)}for(var c=0;c<r.length;c++){var l=[].concat(r[c]);t&&i[l[0]]||(void 0!==a&&(void 0===l[5]||(l[1]="@layer".concat(l[5].length>0?" ".concat(l[5]):""," {").concat(l[1],"}")),l[5]=a),e&&(l[2]&&(l[1]="@media ".concat(l[2]," {").concat(l[1],"}")),l[2]=e),n&&(l[4]?(l[1]="@supports (".concat(l[4],") {").concat(l[1],"}"),l[4]=n):l[4]="".concat(n)),o.push(l))}},o}},403(r){r.exports=function(r){return r[1]}},194(r){var o=[];function e(r){for(var e=-1,t=0;t<o.length;t++)if(o[t].identifier===r){e=t;break}return e}function t(r,t){for(var n={},a=[],i=0;i<r.length;i++){var s=r[i],p=t.base?s[0]+t.base:s[0],c=n[p]||0,l="".concat(p," ").concat(c);n[p]=c+1;var d=e(l),u={css:s[1],media:s[2],sourceMap:s[3],supports:s[4],layer:s[5]};if(-1!==d)o[d].references++,o[d].updater(u);else{var f=function(r,o){var e=o.domAPI(o);return e.update(r),function(o){o?(o.css!==r.css||o.media!==r.media||o.sourceMap!==r.sourceMap||o.supports!==r.supports||o.layer!==r.layer)&&e.update(r=o):e.remove()}}(u,t);t.byIndex=i,o.splice(i,0,{identifier:l,updater:f,references:1})}a.push(l)}return a}r.exports=function(r,n){var a=t(r=r||[],n=n||{});return function(r){r=r||[];for(var i=0;i<a.length;i++){var s=e(a[i]);o[s].references--}for(var p=t(r,n),c=0;c<a.length;c++){var l=e(a[c]);0===o[l].references&&(o[l].updater(),o.splice(l,1))}a=p}}},505(r){var o={};r.exports=function(r,e){var t=function(r){if(void 0===o[r]){var e=document.querySelector(r);if(window.HTMLIFrameElement&&e instanceof window.HTMLIFrameElement)try{e=e.contentDocument.head}catch(r){e=null}o[r]=e}return o[r]}(r);if(!t)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");t.appendChild(e)}},318(r){r.exports=function(r){var o=document.createElement("style");return r.setAttributes(o,r.attributes),r.insert(o,r.options),o}},450(r,o,e){r.exports=function(r){var o=e.nc;o&&r.setAttribute("nonce",o)}},531(r){r.exports=function(r){if("u"<typeof document)return{update:function(){},remove:function(){}};var o=r.insertStyleElement(r);return{update:function(e){var t,n,a;t="",e.supports&&(t+="@supports (".concat(e.supports,") {")),e.media&&(t+="@media ".concat(e.media," {")),(n=void 0!==e.layer)&&(t+="@layer".concat(e.layer.length>0?" ".concat(e.layer):""," {")),t+=e.css,n&&(t+="}"),e.media&&(t+="}"),e.supports&&(t+="}"),(a=e.sourceMap)&&"u">typeof btoa&&(t+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(a))))," */")),r.styleTagTransform(t,o,r.options)},remove:function(){var r;null===(r=o).parentNode||r.parentNode.removeChild(r)}}}},435(r){r.exports=function(r,o){if(o.styleSheet)o.styleSheet.cssText=r;else{for(;o.firstChild;)o.removeChild(o.firstChild);o.appendChild(document.createTextNode(r))}}},538(r,o,e){var t=e(194),n=e.n(t),a=e(531),i=e.n(a),s=e(505),p=e.n(s),c=e(450),l=e.n(c),d=e(318),u=e.n(d),f=e(435),y=e.n(f),v=e(865),g={};g.styleTagTransform=y(),g.setAttributes=l(),g.insert=p().bind(null,"head"),g.domAPI=i(),g.insertStyleElement=u(),n()(v.A,g),v.A&&v.A.locals&&v.A.locals}}]);