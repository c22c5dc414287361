package process

import "syscall"

// attributes gives a child a process group of its own, so that an interrupt from the keyboard
// reaches only the parent, which then stops its children in order; and has the kernel kill it when
// the thread that started it is gone.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
