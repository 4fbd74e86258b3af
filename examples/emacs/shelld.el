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
;;   M-x shelld-run     run a command, and show what it wrote and how it ended
;;   M-x shelld-follow  run one in the background, and show what it writes
;;   C-c C-c            in its buffer: end it and everything it has started

;;; Code:

(require 'jsonrpc)

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
(defun shelld-run (command)
  "Run COMMAND, and show what it wrote and how it ended."
  (interactive (list (read-shell-command "Run: ")))
  (let ((buffer (shelld--buffer command)))
    (shelld--request
     :bash (list :command command :on_timeout "background")
     (lambda (result)
       (shelld--append
        buffer
        (if (equal (plist-get result :status) "running")
            (concat (plist-get result :message) "\n")
          (concat (plist-get result :stdout) (plist-get result :stderr)
                  (shelld--ending result))))))
    buffer))

;;;###autoload
(defun shelld-follow (command)
  "Run COMMAND in the background, and show what it writes as it comes."
  (interactive (list (read-shell-command "Follow: ")))
  (let ((buffer (shelld--buffer command)))
    (shelld--request
     :bash (list :command command :run_in_background t)
     (lambda (job)
       (let ((id (plist-get job :bash_id)))
         (with-current-buffer buffer
           (setq shelld--id id))
         (shelld--read-on buffer id))))
    buffer))

(defun shelld--read-on (buffer id)
  "Show in BUFFER what the shell ID writes, until it ends.
Each read waits in the daemon until there is something new; nothing polls."
  (shelld--request
   :bash_output (list :bash_id id :wait 60000)
   (lambda (output)
     (shelld--append buffer (concat (plist-get output :stdout) (plist-get output :stderr)))
     (if (or (eq (plist-get output :isRunning) t) (eq (plist-get output :more) t))
         (shelld--read-on buffer id)
       (shelld--append buffer (shelld--ending output))))))

(defun shelld-kill ()
  "End the command that this buffer follows, with everything it has started."
  (interactive)
  (unless shelld--id
    (user-error "Nothing runs in this buffer"))
  (shelld--request :kill_shell (list :shell_id shelld--id)
                   (lambda (result) (message "shelld: %s" (plist-get result :message)))))

(provide 'shelld)
;;; shelld.el ends here
