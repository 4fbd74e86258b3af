;;; emacs_example.el --- Drives the example as its user would -*- lexical-binding: t; -*-

(require 'json)
(require 'shelld)
(setq shelld-command (append (json-parse-string (getenv "DAEMON")) nil))

(defun text-of (buffer)
  (with-current-buffer buffer
    (replace-regexp-in-string "after [0-9]+\\.[0-9] s" "after N s"
                              (string-trim-right (buffer-substring-no-properties (point-min) (point-max))))))

(defun wait-for (condition what)
  "Wait until CONDITION is true.  WHAT returns what to say otherwise."
  (with-timeout (60 (error "Did not happen: %s" (funcall what)))
    (while (not (funcall condition))
      (accept-process-output nil 0.01))))

;; This pattern matches the line about the end of a command.
(defconst ended "^\\[.* after [0-9.]+ s\\]$")

(defun shows (buffer pattern)
  "Wait until BUFFER shows PATTERN, and return what it shows below the command."
  (wait-for (lambda ()
              (with-current-buffer buffer
                (save-excursion
                  (goto-char (point-min))
                  (re-search-forward pattern nil t))))
            (lambda () (format "%s in %S" pattern (text-of buffer))))
  (replace-regexp-in-string "\\`\\$ .*\n" "" (text-of buffer)))

(defun in-folder (name) (expand-file-name name (getenv "FOLDER")))
(defun open-gate (name) (write-region "open\n" nil (in-folder name) t 'silent))
(defun press (buffer keys)
  (with-current-buffer buffer (call-interactively (key-binding (kbd keys)))))
(defun is-alive (pid) (eql 0 (signal-process pid 0)))

(defvar report nil)
(defun report (name value) (push (cons name value) report))

(report 'first (shows (shelld-run "cd / && pwd; echo to stderr >&2; exit 3") "exit code 3"))
(report 'second (shows (shelld-run "pwd") "exit code 0"))

;; Both commands write while both run.  Each waits for its gate between two lines.
(let ((left (shelld-follow "sh $FOLDER/steps left"))
      (right (shelld-follow "sh $FOLDER/steps right")))
  (shows left "left 1")
  (shows right "right 1")
  (open-gate "right")
  (shows right "right 2")
  (open-gate "left")
  (report 'left (shows left ended))
  (report 'right (shows right ended)))

(let* ((parent (shelld-follow "sleep 300 & echo pid $!; wait"))
       (text (shows parent "pid [0-9]+"))
       (child (progn (string-match "pid \\([0-9]+\\)" text)
                     (string-to-number (match-string 1 text)))))
  (report 'ran (is-alive child))
  (press parent "C-c C-c")
  (report 'killed (replace-regexp-in-string "pid [0-9]+" "pid PID" (shows parent ended)))
  (wait-for (lambda () (not (is-alive child))) (lambda () "the end of the tree")))

;; Emacs does nothing else until the command has written everything, twice.
(defun block-until-exists (name)
  (while (not (file-exists-p (in-folder name)))
    (call-process "sleep" nil nil nil "0.01")))

(let ((flood (shelld-follow "sh $FOLDER/flood")))
  (shows flood "^y$")
  (block-until-exists "flooded")
  ;; Once this command has ended, Emacs has read everything.
  (shows (shelld-follow "true") ended)
  (open-gate "more")
  (shows flood "next")
  (open-gate "again")
  (block-until-exists "flooded again")
  (shows flood ended)
  (with-current-buffer flood
    (goto-char (point-min))
    (let ((written (* 3 (count-matches "^y$")))
          (losses 0)
          (skipped 0))
      (while (re-search-forward "^\\[\\([0-9]+\\) bytes skipped\\]$" nil t)
        (setq losses (1+ losses)
              skipped (+ skipped (string-to-number (match-string 1)))))
      ;; At the edges of the skipped output, a line may be cut.
      (report 'flood (and (> losses 1)
                          (< (abs (- (+ written skipped) 12000000)) (* 6 (1+ losses))))))))

(let ((handed-over (shelld-run "sh $FOLDER/steps over")))
  (shows handed-over "over 1")
  (press handed-over "C-c C-b")
  (open-gate "over")
  (report 'handed_over (shows handed-over ended)))

(let ((silent (shelld-run "sleep 300")))
  (press silent "C-c C-c")
  (report 'silent (shows silent ended)))

;; A task ends with its buffer.
(let* ((deleted (shelld-follow "echo pid $$; exec sleep 300"))
       (text (shows deleted "pid [0-9]+$"))
       (pid (string-to-number (substring text 4))))
  (kill-buffer deleted)
  (wait-for (lambda () (not (is-alive pid))) (lambda () "the end of the task")))

(let ((lost (shelld-follow "echo lost; sleep 300")))
  (shows lost "^lost$")
  (signal-process (jsonrpc--process shelld--connection) 'SIGKILL)
  (report 'lost (shows lost "has ended")))

;; The next task starts another daemon.
(report 'blocked (shows (shelld-run "rm -rf /") "\\["))

;; The command draws a bar twice on one line, with a colour, and sets the title of the window.
(let ((bar (shelld-run "printf '\\e]0;title\\a\\e[31m10%%'; sleep 0.1; printf '\\r20%%\\e[0m\\n'")))
  (report 'bar (shows bar ended))
  (with-current-buffer bar
    (goto-char (point-min))
    (re-search-forward "^20%")
    (report 'colour (and (get-text-property (1- (point)) 'font-lock-face) t))))

(write-region (json-encode report) nil (getenv "REPORT"))
;;; emacs_example.el ends here
