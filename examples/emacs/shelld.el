;;; shelld.el --- Run shell commands and follow them  -*- lexical-binding: t; -*-

;; Version: 0.1
;; Package-Requires: ((emacs "28.1"))
;; Keywords: processes, tools
;; SPDX-License-Identifier: MIT

;;; Commentary:

;; Commands run in a daemon, which `jsonrpc.el' speaks to.  They share one
;; session, as in a terminal, and all of them end with Emacs.  Have `shelld' on
;; the PATH, or set `shelld-command'.
;;
;;   M-x shelld-run       run a command, and show what it wrote and how it ended; with
;;                        C-u, on a terminal: if it waits for input, you can answer
;;   M-x shelld-follow    run one in the background, and show what it writes
;;   M-x shelld-terminal  run one in a terminal, and type into it
;;   C-c C-c              in its buffer: end it and everything it has started; in
;;                        a terminal: interrupt it (C-c C-k ends it)
;;   C-c C-b              in its buffer: wait for it no longer, but show what it
;;                        writes as it comes

;;; Code:

(require 'cl-lib)
(require 'jsonrpc)
(require 'term)

(defvar term-height)
(defvar term-width)

(defgroup shelld nil
  "Shell commands, run by a daemon."
  :group 'processes)

(defcustom shelld-command '("shelld")
  "The program that runs commands, and its arguments."
  :type '(repeat string))

(defvar shelld--connection nil
  "The connection to the daemon, if there is one.")

(defvar-local shelld--id nil
  "The id of the shell that this buffer follows.")

(define-derived-mode shelld-mode special-mode "Shelld"
  "Major mode for what a command has written.")

(define-key shelld-mode-map (kbd "C-c C-c") #'shelld-kill)
;; C-b alone moves point.
(define-key shelld-mode-map (kbd "C-c C-b") #'shelld-background)

(defun shelld--connect ()
  "Return a connection to a daemon that runs."
  (unless (and shelld--connection (jsonrpc-running-p shelld--connection))
    (setq shelld--connection
          (jsonrpc-process-connection
           :name "shelld"
           :process (lambda ()
                      (make-process :name "shelld" :command shelld-command
                                    :connection-type 'pipe
                                    :coding 'utf-8-emacs-unix :noquery t)))))
  shelld--connection)

(defun shelld--request (method params on-result)
  "Send METHOD with PARAMS, a plist; call ON-RESULT with what comes of it."
  (jsonrpc-async-request
   (shelld--connect) method params
   :success-fn on-result
   :error-fn (lambda (failure) (message "shelld: %s" (plist-get failure :message)))
   ;; The daemon decides how long a command may take.
   :timeout nil))

(defun shelld--buffer (command)
  "Show and return a new buffer for COMMAND."
  (let ((buffer (generate-new-buffer (format "*shelld: %s*" command))))
    (with-current-buffer buffer
      (shelld-mode))
    (shelld--append buffer (format "$ %s\n" command))
    (display-buffer buffer)
    buffer))

(defun shelld--append (buffer text)
  "Put TEXT at the end of BUFFER; who looks at the end goes on to do so."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (let ((inhibit-read-only t)
            (followers (seq-filter (lambda (window) (= (window-point window) (point-max)))
                                   (get-buffer-window-list buffer nil t))))
        (save-excursion
          (goto-char (point-max))
          (insert text))
        (dolist (window followers)
          (set-window-point window (point-max)))))))

(defun shelld--ending (result)
  "Return a line that says how the command of RESULT has ended."
  (format "[%s after %d ms]\n"
          (cond ((plist-get result :exitCode) (format "exit code %d" (plist-get result :exitCode)))
                ((plist-get result :signal))
                (t (plist-get result :status)))
          (plist-get result :durationMs)))

;;;###autoload
(defun shelld-run (command &optional may-ask)
  "Run COMMAND, and show what it wrote and how it ended.
With MAY-ASK, it has a terminal, which is shown once it waits for input."
  (interactive (list (read-shell-command "Run: ") current-prefix-arg))
  (let ((buffer (shelld--buffer command)))
    (shelld--request
     :bash (append (list :command command :description (buffer-name buffer)
                         :on_timeout "background")
                   (when may-ask '(:tty t :on_prompt "background")))
     (lambda (result)
       (if (equal (plist-get result :status) "running")
           (shelld--continue buffer (plist-get result :bash_id) (plist-get result :prompt) may-ask)
         (shelld--append
          buffer
          (concat (string-replace "\r\n" "\n" (plist-get result :stdout))
                  (plist-get result :stderr)
                  (shelld--ending result))))))
    buffer))

(defun shelld--continue (buffer id prompt on-terminal)
  "Go on in BUFFER with the shell ID, which was handed over to the background.
PROMPT is what it waits for, if anything.  ON-TERMINAL: it has a terminal."
  (if (not (buffer-live-p buffer))
      (shelld--end id)
    (if prompt
        (message "shelld: %s waits for input in %s" (plist-get prompt :program) buffer)
      (message "shelld: %s continues in the background" id))
    (if on-terminal
        (with-selected-window (display-buffer buffer)
          (shelld-terminal-mode)
          (shelld--attach id)
          (shelld--resize (cons term-width term-height)))
      (shelld--append buffer (format "[%s continues in the background]\n" id))
      (shelld--follow buffer id))))

(defun shelld-background ()
  "Hand the command that this buffer waits for over to the background."
  (interactive)
  (let ((description (buffer-name)))
    (shelld--request
     :list_shells nil
     (lambda (result)
       (let ((shell (seq-find (lambda (shell)
                                (and (eq (plist-get shell :inForeground) t)
                                     (equal (plist-get shell :description) description)))
                              (plist-get result :shells))))
         (if shell
             ;; The answer to the call shows the rest.
             (shelld--request :background (list :bash_id (plist-get shell :bash_id)) #'ignore)
           (message "shelld: nothing runs in the foreground of this buffer")))))))

;;;###autoload
(defun shelld-follow (command)
  "Run COMMAND in the background, and show what it writes as it comes."
  (interactive (list (read-shell-command "Follow: ")))
  (let ((buffer (shelld--buffer command)))
    (shelld--request
     :bash (list :command command :run_in_background t)
     (lambda (job) (shelld--follow buffer (plist-get job :bash_id))))
    buffer))

(defun shelld--follow (buffer id)
  "Show in BUFFER what the shell ID writes."
  (with-current-buffer buffer
    (setq shelld--id id))
  (shelld--read-on id (lambda (text) (shelld--append buffer text))))

(defun shelld--read-on (id show &optional offset)
  "Call SHOW with each text that the shell ID writes, and with how it ended.
Each read waits in the daemon until there is something new; nothing polls.
From OFFSET, read escape sequences, too, and take no output from other reads."
  (shelld--request
   :bash_output (append (list :bash_id id :wait 60000)
                        (when offset (list :stdout_offset offset :strip_ansi :json-false)))
   (lambda (output)
     (funcall show (concat (plist-get output :stdout) (plist-get output :stderr)))
     (if (or (eq (plist-get output :isRunning) t) (eq (plist-get output :more) t))
         (shelld--read-on id show
                          (when offset (plist-get (plist-get output :stdoutRange) :end)))
       (funcall show (shelld--ending output))))))

;;;###autoload
(defun shelld-terminal (command)
  "Run COMMAND in a terminal, and type into it."
  (interactive (list (read-shell-command "Run in a terminal: ")))
  (let ((buffer (generate-new-buffer (format "*shelld: %s*" command))))
    (pop-to-buffer buffer)
    (shelld-terminal-mode)
    (shelld--request
     :bash (list :command command :tty t :rows term-height :cols term-width :run_in_background t)
     (lambda (job)
       (let ((id (plist-get job :bash_id)))
         (if (buffer-live-p buffer)
             (with-current-buffer buffer
               (shelld--attach id))
           (shelld--end id)))))
    buffer))

(defun shelld--attach (id)
  "Show the terminal of the shell ID in the current buffer."
  (let ((buffer (current-buffer)))
    (setq shelld--id id)
    ;; The offset: write_stdin returns output, too, and must not take it from here.
    (shelld--read-on id (lambda (text) (shelld--show buffer text)) 0)))

(define-derived-mode shelld-terminal-mode term-mode "Shelld-Terminal"
  "Major mode for the terminal of a command."
  (let ((inhibit-read-only t))
    (erase-buffer))
  (setq buffer-read-only nil)
  ;; The terminal of Emacs needs a process.  This one only holds the place.
  (let ((process (make-pipe-process :name "shelld-terminal" :buffer (current-buffer)
                                    :noquery t :sentinel #'ignore)))
    (set-marker (process-mark process) (point-max)))
  ;; Output must not run commands of Emacs.
  (setq-local term-command-function #'ignore)
  (term-char-mode)
  (add-function :filter-return (local 'window-adjust-process-window-size-function)
                #'shelld--resize)
  (add-hook 'kill-buffer-hook (lambda () (when shelld--id (shelld--end shelld--id))) nil t))

(defun shelld--show (buffer text)
  "Show TEXT, which a program has written, on the terminal in BUFFER."
  (when (buffer-live-p buffer)
    ;; The daemon answers what programs ask their terminal.  The answers of Emacs are dropped.
    (cl-letf (((symbol-function 'process-send-string) #'ignore))
      (term-emulate-terminal (get-buffer-process buffer) (encode-coding-string text 'utf-8)))))

(define-advice term-send-raw-string (:around (send keys) shelld)
  "Pass KEYS to the daemon in one of our terminals; otherwise call SEND."
  (if (derived-mode-p 'shelld-terminal-mode)
      (when shelld--id
        (shelld--request :write_stdin
                         (list :bash_id shelld--id :text (decode-coding-string keys 'utf-8))
                         #'ignore))
    (funcall send keys)))

(defun shelld--resize (size)
  "Tell the daemon SIZE, the columns and rows of the terminal, and return it."
  (when (and size shelld--id)
    (shelld--request :resize_shell
                     (list :bash_id shelld--id :rows (cdr size) :cols (car size)) #'ignore))
  size)

(defun shelld--end (id)
  "End the shell ID, with everything it has started."
  (shelld--request :kill_shell (list :shell_id id)
                   (lambda (result) (message "shelld: %s" (plist-get result :message)))))

(defun shelld-kill ()
  "End the command of this buffer, with everything it has started."
  (interactive)
  (unless shelld--id
    (user-error "Nothing runs in this buffer"))
  (shelld--end shelld--id))

(provide 'shelld)
;;; shelld.el ends here
