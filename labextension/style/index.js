import './base.css';
import './record.css';
