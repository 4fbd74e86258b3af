;;; emacs.el --- Act as a package for Emacs, with jsonrpc.el -*- lexical-binding: t; -*-

;; The script reports to the file $REPORT, as JSON.  The daemon's command is in $DAEMON, as a JSON
;; array.

(require 'jsonrpc)
(require 'json)

(defvar exit-status nil)
(defvar connection
  (jsonrpc-process-connection
   :name "shelld"
   :notification-dispatcher (lambda (&rest message) (error "Notification: %S" message))
   :on-shutdown (lambda (ended) (setq exit-status (process-exit-status (jsonrpc--process ended))))
   :process (lambda ()
              (make-process :name "shelld"
                            :command (append (json-parse-string (getenv "DAEMON")) nil)
                            :connection-type 'pipe
                            :coding 'utf-8-emacs-unix
                            :noquery t
                            :stderr (get-buffer-create "*shelld stderr*")))))

(defun call (method &rest params)
  "Return the result of METHOD with PARAMS, a plist."
  (jsonrpc-request connection method params :timeout 60))

(defun start (method params)
  "Send a request; return a cons whose car will hold the result or the error."
  (let ((box (list nil)))
    (jsonrpc-async-request connection method params
                           :success-fn (lambda (result) (setcar box (or result :null)))
                           :error-fn (lambda (failure) (setcar box failure))
                           :timeout 60)
    box))

(defun await (box)
  "Wait until BOX has something in its car, and return that."
  (with-timeout (60 (error "No answer"))
    (while (null (car box)) (accept-process-output nil 0.01)))
  (car box))

(defvar report nil)
(defun report (name value) (push (cons name value) report))

;; Without params, this library sends null.
(report 'ping (null (call :ping)))
(let ((result (call :bash :command "echo out; echo err >&2; exit 3")))
  (report 'foreground (vector (plist-get result :stdout) (plist-get result :stderr)
                              (plist-get result :exitCode))))
(condition-case failure (call :bash)
  (jsonrpc-error (report 'failure (vector (alist-get 'jsonrpc-error-code (cdr failure))
                                          (alist-get 'jsonrpc-error-message (cdr failure))))))

(let* ((job (call :bash :command "echo ready; sleep 300" :run_in_background t))
       (id (plist-get job :bash_id))
       (first (call :bash_output :bash_id id :wait 10000))
       (waiting (start :bash_output (list :bash_id id :wait 60000 :until "exit"))))
  (report 'background (vector (plist-get first :stdout) (plist-get first :isRunning)))
  (report 'killed (plist-get (call :kill_shell :shell_id id) :status))
  (report 'waited (plist-get (await waiting) :status)))

;; This library cannot cancel, but it can notify.  Its request ids count from 1.
(let ((slow (start :bash '(:command "sleep 300"))))
  (jsonrpc-notify connection :$/cancelRequest (list :id (jsonrpc--next-request-id connection)))
  (report 'cancelled (plist-get (await slow) :code)))

(let* ((long (call :bash :command "yes 0123456789012345678 | head -c 5000000"))
       (rest (call :bash_output :bash_id (plist-get long :bash_id)
                   :stdout_offset 0 :max_bytes 8000000)))
  (report 'long (vector (plist-get long :truncated) (plist-get long :stdoutBytes)
                        (length (plist-get rest :stdout)))))

(let ((boxes (mapcar (lambda (number)
                       (start :bash (list :command (format "echo %d" number) :session nil)))
                     (number-sequence 1 100)))
      (number 0))
  (report 'many (if (seq-every-p (lambda (box)
                                   (equal (plist-get (await box) :stdout)
                                          (format "%d\n" (setq number (1+ number)))))
                                 boxes)
                    t :json-false)))

(report 'shutdown (null (call :shutdown)))
(jsonrpc-notify connection :exit nil)
(with-timeout (60 (error "It does not end"))
  (while (null exit-status) (accept-process-output nil 0.01)))
(report 'exit_code exit-status)
(write-region (json-encode report) nil (getenv "REPORT"))
;;; emacs.el ends here
