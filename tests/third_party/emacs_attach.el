;; Reports what the example shows of a lasting daemon. The environment variable CASE says what to do.

(load "shelld")
(setq shelld-command (append (json-parse-string (getenv "DAEMON")) nil)
      shelld-attach (getenv "NAME"))

(defun wait-until (is-true)
  (let ((end (+ (float-time) 30)))
    (while (and (not (funcall is-true)) (< (float-time) end))
      (accept-process-output nil 0.1))))

(defun shown (buffer)
  "Return what BUFFER shows once its command has ended."
  (wait-until (lambda () (null (buffer-local-value 'shelld--request buffer))))
  (replace-regexp-in-string
   "after [0-9.]+ s" "after N s"
   (with-current-buffer buffer (string-trim (buffer-string)))))

(defun rejoined ()
  (seq-find (lambda (each) (string-prefix-p "*shelld: read" (buffer-name each))) (buffer-list)))

(defvar report
  (if (equal (getenv "CASE") "follow")
      (shown (shelld-follow "echo out"))
    (shown (shelld-follow "true"))
    ;; Emacs has been attached for an hour.
    (let ((time (symbol-function 'float-time)))
      (cl-letf (((symbol-function 'float-time)
                 (lambda (&optional given) (+ (funcall time given) (if given 0 3600)))))
        (shelld-rejoin)
        (wait-until #'rejoined)))
    (if (rejoined) (shown (rejoined)) "nothing")))

(with-temp-file (getenv "REPORT")
  (insert (json-serialize (list :shown report))))
