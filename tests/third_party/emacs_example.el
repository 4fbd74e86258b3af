;;; emacs_example.el --- Drives the example as its user would -*- lexical-binding: t; -*-

(require 'json)
(require 'shelld)
(setq shelld-command (append (json-parse-string (getenv "DAEMON")) nil))

(defun text-of (buffer)
  (with-current-buffer buffer
    (replace-regexp-in-string "[0-9]+ ms" "N ms" (buffer-string))))

(defun shows (buffer pattern)
  "Wait until BUFFER shows PATTERN, and return what it shows."
  (with-timeout (20 (error "Not shown: %s in %S" pattern (text-of buffer)))
    (while (not (string-match-p pattern (text-of buffer)))
      (accept-process-output nil 0.01)))
  (text-of buffer))

(let* ((first (shows (shelld-run "cd / && pwd; echo to stderr >&2; exit 3") "exit code 3"))
       (second (shows (shelld-run "pwd") "exit code 0"))
       (job (shelld-follow "echo one; sleep 0.2; echo two; sleep 300")))
  (shows job "one\ntwo\n")
  (with-current-buffer job
    (call-interactively (key-binding (kbd "C-c C-c"))))
  (write-region (json-encode (vector first second (shows job "SIGTERM"))) nil (getenv "REPORT")))
;;; emacs_example.el ends here
