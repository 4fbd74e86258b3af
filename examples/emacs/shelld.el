;;; shelld.el --- Run shell commands and follow them  -*- lexical-binding: t; -*-

;; Version: 0.1
;; Package-Requires: ((emacs "28.1"))
;; Keywords: processes, tools
;; SPDX-License-Identifier: MIT

;;; Commentary:

;; See the output of shell commands as it comes, answer their questions, end them
;; reliably.  Commands run in a daemon, which `jsonrpc.el' speaks to.  They share
;; one session, as in a terminal, and all of them end with Emacs, unless you set
;; `shelld-attach'.  Have `shelld' on the PATH, or set `shelld-command'.
;;
;;   M-x shelld-run       run a command as the next one of the session
;;   M-x shelld-follow    run a command in the background from the start
;;   M-x shelld-terminal  run a command in a terminal, and type into it
;;   M-x shelld-rejoin    show the commands that the last Emacs has left
;;   C-c C-b              in its buffer: hand it over to the background
;;   C-c C-c              in its buffer: end it and everything it has started; in
;;                        a terminal: interrupt it (C-c C-k ends it)
;;   C-c C-s              in its buffer: type keys, named as in tmux, such as "y" or
;;                        "Down Enter"
;;
;; Each command has a terminal, so it can use colours, and ask.  If it asks for a
;; line, you are asked in the minibuffer.

;;; Code:

(require 'ansi-color)
(require 'cl-lib)
(require 'jsonrpc)
(require 'subr-x)
(require 'term)

(defvar term-height)
(defvar term-width)

(defgroup shelld nil
  "Shell commands, run by a daemon."
  :group 'processes)

(defcustom shelld-command '("shelld")
  "The program that runs commands, and its arguments."
  :type '(repeat string))

(defcustom shelld-attach nil
  "The name of a lasting daemon, such as that of the project, or nil.
Commands then go on when Emacs ends, for up to an hour.  `shelld-rejoin' shows
those that still run, and those that have ended meanwhile."
  :type '(choice (const nil) string))

;;; The daemon

(defconst shelld--occupied 4
  "The exit code of `shelld attach' if another client has the daemon.")

(defclass shelld-connection (jsonrpc-process-connection) ()
  "A connection to the daemon.")

(defvar shelld--connection nil
  "The connection to the daemon, if there is one.")

(defvar shelld--connected-at nil
  "The time at which the connection began, in seconds since 1970.")

(defvar shelld--last-id nil
  "The id of the request that was sent last.")

(cl-defmethod jsonrpc-connection-send :before ((_connection shelld-connection) &rest message)
  "Remember the id of MESSAGE: the library keeps it to itself, and events carry it."
  (setq shelld--last-id (plist-get message :id)))

(defun shelld--connect ()
  "Return a connection to a daemon that runs."
  (unless (and shelld--connection (jsonrpc-running-p shelld--connection))
    (setq shelld--connected-at (float-time)
          shelld--connection
          (apply
           #'make-instance 'shelld-connection
           :name "shelld"
           :notification-dispatcher #'shelld--on-event
           :on-shutdown #'shelld--on-shutdown
           :process (lambda ()
                      (make-process :name "shelld"
                                    :command (append shelld-command
                                                     (and shelld-attach
                                                          (list "attach" "--name" shelld-attach)))
                                    :connection-type 'pipe
                                    ;; Without a buffer, messages on stderr would mix with the
                                    ;; answers.  The library expects this name.
                                    :stderr (get-buffer-create "*shelld stderr*")
                                    :coding 'utf-8-emacs-unix :noquery t))
           ;; A log of all messages would contain passwords.
           (if (< emacs-major-version 30)
               '(:events-buffer-scrollback-size 0)
             '(:events-buffer-config (:size 0))))))
  shelld--connection)

(defun shelld--request (method params &optional on-result on-failure)
  "Send METHOD with PARAMS, a plist, and return the id of this request.
Call ON-RESULT with the result, or ON-FAILURE with a sentence."
  (jsonrpc-async-request
   (shelld--connect) method params
   :success-fn (or on-result #'ignore)
   :error-fn (lambda (failure)
               (funcall (or on-failure (apply-partially #'message "shelld: %s"))
                        (if (jsonrpc-running-p shelld--connection)
                            (plist-get failure :message)
                          (shelld--why-lost))))
   ;; The daemon decides how long a command may take.
   :timeout nil)
  shelld--last-id)

(defun shelld--why-lost ()
  "Return a sentence that says why the connection has ended."
  (if (eql (process-exit-status (jsonrpc--process shelld--connection)) shelld--occupied)
      (format "another editor is attached to %s" shelld-attach)
    "the daemon has ended"))

;;; Tasks

(defvar shelld--tasks (make-hash-table)
  "The buffers of the commands that run, by the ids of their requests.")

(defvar-local shelld--request nil
  "The id of the request that runs the command of this buffer.")

(defvar-local shelld--id nil
  "The id of the shell of this buffer.  Nil until the daemon has sent it.")

(defvar-local shelld--in-foreground nil
  "Whether the session waits for the command of this buffer.")

(defvar-local shelld--prompt nil
  "The question that the user has not answered yet, if there is one.")

(defvar-local shelld--skipped 0
  "How many bytes of output were skipped in this buffer.")

(defun shelld--start (call)
  "Run the command of CALL, the params of bash, in the current buffer."
  (let ((buffer (current-buffer)))
    (setq shelld--in-foreground (not (plist-get call :run_in_background)))
    (setq shelld--request
          (shelld--request
           :bash (append call '(:tty t :strip_ansi :json-false))
           (lambda (result) (shelld--on-answer buffer result))
           (lambda (failure) (shelld--finish buffer failure))))
    (shelld--own)))

(defun shelld--own ()
  "Note that the events of its request belong to the current buffer.
The command ends with the buffer, unless Emacs itself ends."
  (puthash shelld--request (current-buffer) shelld--tasks)
  (add-hook 'kill-buffer-hook #'shelld--end nil t))

(defun shelld--on-answer (buffer result)
  "Note in BUFFER if the command of RESULT continues.  An event tells its end."
  (when (and (buffer-live-p buffer) (equal (plist-get result :status) "running"))
    (with-current-buffer buffer
      (setq shelld--id (plist-get result :bash_id))
      (when shelld--in-foreground
        (setq shelld--in-foreground nil)
        (message "shelld: %s continues in the background" shelld--id)))))

(defun shelld--on-event (_connection method event)
  "Handle EVENT, the params of the notification METHOD."
  (let ((buffer (gethash (plist-get event :requestId) shelld--tasks)))
    (when (buffer-live-p buffer)
      (with-current-buffer buffer
        (setq shelld--id (plist-get event :bash_id))
        (pcase method
          ('shell/output
           (shelld--show-loss (plist-get event :skipped) (plist-get event :dropped))
           (shelld--show (plist-get event :text)))
          ('shell/prompt (shelld--on-prompt (plist-get event :prompt)))
          ('shell/exited
           ;; This event counts all bytes that were skipped.
           (shelld--show-loss (- (plist-get event :skipped) shelld--skipped) 0)
           (shelld--finish buffer (shelld--ending event))))))))

(defun shelld--show-loss (skipped dropped)
  "Say how many bytes of output are missing: SKIPPED and DROPPED ones.
If a command writes faster than Emacs reads, the daemon skips some."
  (setq shelld--skipped (+ shelld--skipped skipped))
  (when (> (+ skipped dropped) 0)
    (shelld--show-note (format "%d bytes skipped" (+ skipped dropped)))))

(defun shelld--ending (event)
  "Return how the command of EVENT has ended."
  (format "%s after %.1f s"
          (cond ((plist-get event :exitCode) (format "exit code %d" (plist-get event :exitCode)))
                ((plist-get event :signal))
                (t (plist-get event :status)))
          (/ (plist-get event :durationMs) 1000.0)))

(defun shelld--finish (buffer note)
  "Show NOTE in BUFFER, whose command has ended."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (shelld--show-note note)
      (remhash shelld--request shelld--tasks)
      (setq shelld--request nil
            shelld--id nil
            shelld--in-foreground nil
            shelld--prompt nil))))

(defun shelld--name ()
  "Return the params that name the command of this buffer, which runs.
A foreground call that has sent no event yet is known by its request only."
  (if shelld--id (list :bash_id shelld--id) (list :request_id shelld--request)))

(defun shelld--on-shutdown (_connection)
  "Say in all buffers why their commands can be followed no longer."
  (dolist (buffer (hash-table-values shelld--tasks))
    (shelld--finish buffer (shelld--why-lost))))

(defun shelld-background ()
  "Hand the command that this buffer waits for over to the background."
  (interactive)
  (unless shelld--in-foreground
    (user-error "Command `shelld-background': nothing runs in the foreground of this buffer"))
  (shelld--request :background (list :request_id shelld--request)))

(defun shelld--end ()
  "End the command of this buffer, if one runs, with everything it has started."
  (cond (shelld--id (shelld--request :kill_shell (list :shell_id shelld--id)))
        ;; The id is unknown.  This answers the call, and its result has the id.
        (shelld--request
         (shelld--request :background (list :request_id shelld--request)
                          (lambda (result)
                            (shelld--request :kill_shell
                                             (list :shell_id (plist-get result :bash_id))))))))

(defun shelld-kill ()
  "End the command of this buffer, with everything it has started."
  (interactive)
  (unless shelld--request
    (user-error "Nothing runs in this buffer"))
  (shelld--end))

;;; Questions

(defvar shelld--asking nil
  "Whether the user is asked something now.")

(defun shelld--on-prompt (prompt)
  "Ask the user what PROMPT asks.  Nil: the command no longer waits."
  (setq shelld--prompt nil)
  (cond ((null prompt))
        ((eq (plist-get prompt :lineMode) :json-false)
         (message "shelld: %s waits for keys; C-c C-s types some" (plist-get prompt :program)))
        (t (setq shelld--prompt prompt)
           ;; Ask later, not within the function that reads from the daemon.
           (run-at-time 0 nil #'shelld--ask))))

(defun shelld--ask ()
  "Ask the user what the commands ask, one question after the other."
  (unless shelld--asking
    (let ((shelld--asking t)
          buffer)
      (while (setq buffer (seq-find (lambda (each)
                                      (and (buffer-live-p each)
                                           (buffer-local-value 'shelld--prompt each)))
                                    (hash-table-values shelld--tasks)))
        (with-current-buffer buffer
          (shelld--ask-here))))))

(defun shelld--ask-here ()
  "Ask the user what the command of this buffer asks, and pass the answer on."
  (let* ((prompt shelld--prompt)
         (text (concat (plist-get prompt :text) " "))
         (is-secret (and (eq (plist-get prompt :lineMode) t)
                         (eq (plist-get prompt :echo) :json-false)))
         (enable-recursive-minibuffers t)
         (answer (condition-case nil
                     (if is-secret (read-passwd text) (read-string text))
                   (quit nil))))
    (cond ((not (eq shelld--prompt prompt))
           (message "shelld: %s no longer waits for this answer" (plist-get prompt :program)))
          (answer
           (setq shelld--prompt nil)
           (shelld--request :write_stdin (list :bash_id shelld--id :text (concat answer "\n")
                                               :secret (if is-secret t :json-false))))
          (t
           (setq shelld--prompt nil)
           (message "shelld: %s still waits; C-c C-s types keys" (plist-get prompt :program))))))

(defun shelld-type (keys)
  "Type KEYS, named as in tmux, into the command of this buffer."
  (interactive "sKeys, such as y or Down Enter: ")
  (unless shelld--request
    (user-error "Nothing runs in this buffer"))
  (shelld--request :write_stdin
                   (append (shelld--name) (list :keys (vconcat (split-string keys))))))

;;; Output

(define-derived-mode shelld-mode special-mode "Shelld"
  "Major mode for what a command has written."
  (setq-local ansi-color-apply-face-function #'ansi-color-apply-text-property-face))

(define-key shelld-mode-map (kbd "C-c C-c") #'shelld-kill)
(define-key shelld-mode-map (kbd "C-c C-s") #'shelld-type)
;; C-b alone moves point.
(define-key shelld-mode-map (kbd "C-c C-b") #'shelld-background)

(defvar-local shelld--held ""
  "Carriage returns at the end of the output, whose effect is not known yet.")

(defun shelld--show (text)
  "Show TEXT, which the command has written, in the current buffer."
  (if (derived-mode-p 'shelld-terminal-mode)
      (shelld--draw text)
    (let ((lines (replace-regexp-in-string "\r+\n" "\n" (concat shelld--held text))))
      (string-match "\r*\\'" lines)
      (setq shelld--held (match-string 0 lines))
      (shelld--append (substring lines 0 (match-beginning 0))))))

(defun shelld--show-note (note)
  "Show NOTE on a line of its own."
  (shelld--show (format (if (save-excursion (goto-char (point-max)) (bolp)) "[%s]\r\n" "\r\n[%s]\r\n")
                        note)))

(defun shelld--append (text)
  "Put TEXT at the end of the buffer.  Windows that show the end follow it."
  (let ((inhibit-read-only t)
        (followers (seq-filter (lambda (window) (= (window-point window) (point-max)))
                               (get-buffer-window-list nil nil t)))
        (start (point-max)))
    (save-excursion
      (goto-char start)
      ;; Remove titles and links, which `ansi-color' leaves in.
      (insert (replace-regexp-in-string "\e\\][^\a\e]*\\(\a\\|\e\\\\\\)\\|\e[()].\\|\e[=>78]" "" text))
      (ansi-color-apply-on-region start (point-max))
      ;; A carriage return begins the line anew, as progress bars do.
      (goto-char start)
      (while (search-forward "\r" nil t)
        (delete-region (line-beginning-position) (point))))
    (dolist (window followers)
      (set-window-point window (point-max)))))

(defconst shelld--events ["output" "prompt" "exit"]
  "What to be told of a command.")

(defun shelld--open (command)
  "Show and return a new buffer for COMMAND."
  (let ((buffer (generate-new-buffer (format "*shelld: %s*" command))))
    (with-current-buffer buffer
      (shelld-mode)
      (shelld--append (format "$ %s\n" command))
      (goto-char (point-max))
      (display-buffer buffer))
    buffer))

(defun shelld--run (command &rest call)
  "Show and return a new buffer in which COMMAND runs, with CALL as further params."
  (let ((buffer (shelld--open command)))
    (with-current-buffer buffer
      (shelld--start
       (append call (list :command command :notify shelld--events
                          :cols (window-max-chars-per-line (get-buffer-window))
                          ;; This buffer shows everything, so it needs no pager.
                          :env '(:PAGER "cat")))))
    buffer))

;;;###autoload
(defun shelld-run (command)
  "Run COMMAND as the next one of the session, and show what it writes as it comes."
  (interactive (list (read-shell-command "Run: ")))
  (shelld--run command :on_timeout "background"))

;;;###autoload
(defun shelld-follow (command)
  "Run COMMAND in the background, and show what it writes as it comes."
  (interactive (list (read-shell-command "Follow: ")))
  (shelld--run command :run_in_background t))

;;; What an earlier Emacs has left

(defun shelld--rejoin (shell)
  "Show SHELL, which an earlier Emacs has started, from its first output on."
  (with-current-buffer (shelld--open (plist-get shell :command))
    (let ((buffer (current-buffer)))
      (setq shelld--id (plist-get shell :bash_id))
      (setq shelld--request
            (shelld--request
             :subscribe (list :bash_id shelld--id :events shelld--events :strip_ansi :json-false)
             nil
             (lambda (failure) (shelld--finish buffer failure))))
      (shelld--own))))

;;;###autoload
(defun shelld-rejoin ()
  "Show the commands that run, or have ended while no Emacs was attached."
  (interactive)
  (unless shelld-attach
    (user-error "Set `shelld-attach' to the name of a lasting daemon"))
  (shelld--request
   :server_info nil
   (lambda (info)
     (let* ((away (/ (plist-get (plist-get info :attachment) :detachedMs) 1000.0))
            ;; The user may have run other commands since Emacs has attached.
            (left-at (- shelld--connected-at away 1)))
       (shelld--request
        :list_shells nil
        (lambda (result)
          (seq-doseq (shell (plist-get result :shells))
            (when (or (eq (plist-get shell :isRunning) t)
                      (>= (+ (float-time (date-to-time (plist-get shell :startedAt)))
                             (/ (plist-get shell :durationMs) 1000.0))
                          left-at))
              (shelld--rejoin shell)))))))))

;;; Terminals

;;;###autoload
(defun shelld-terminal (command)
  "Run COMMAND in a terminal, and type into it."
  (interactive (list (read-shell-command "Run in a terminal: ")))
  (pop-to-buffer (generate-new-buffer (format "*shelld: %s*" command)))
  (shelld-terminal-mode)
  ;; No prompt events: the user sees the questions in the terminal.
  (shelld--start (list :command command :notify ["output" "exit"] :run_in_background t
                       :rows term-height :cols term-width))
  (current-buffer))

(define-derived-mode shelld-terminal-mode term-mode "Shelld-Terminal"
  "Major mode for the terminal of a command."
  ;; The terminal of Emacs needs a process.  This process is a placeholder.
  (let ((process (make-pipe-process :name "shelld-terminal" :buffer (current-buffer)
                                    :noquery t :sentinel #'ignore)))
    (set-marker (process-mark process) (point-max)))
  ;; Output must not run commands of Emacs.
  (setq-local term-command-function #'ignore)
  (term-char-mode)
  (add-function :filter-return (local 'window-adjust-process-window-size-function)
                #'shelld--resize))

(defun shelld--draw (text)
  "Show TEXT, which a program has written, on the terminal in the current buffer."
  ;; The daemon answers what programs ask their terminal.  The answers of Emacs are dropped.
  (cl-letf (((symbol-function 'process-send-string) #'ignore))
    (term-emulate-terminal (get-buffer-process (current-buffer))
                           (encode-coding-string text 'utf-8))))

(define-advice term-send-raw-string (:around (send keys) shelld)
  "Pass KEYS to the daemon in one of our terminals; otherwise call SEND."
  (if (derived-mode-p 'shelld-terminal-mode)
      (when shelld--request
        (shelld--request :write_stdin
                         (append (shelld--name)
                                 (list :text (decode-coding-string keys 'utf-8)))))
    (funcall send keys)))

(defun shelld--resize (size)
  "Tell the daemon SIZE, the columns and rows of the terminal, and return it."
  (when (and size shelld--request)
    (shelld--request :resize_shell
                     (append (shelld--name) (list :rows (cdr size) :cols (car size)))
                     ;; The command may end meanwhile.
                     nil #'ignore))
  size)

(provide 'shelld)
;;; shelld.el ends here
