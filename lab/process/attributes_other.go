//go:build !linux

package process

import "syscall"

// attributes gives a child a process group of its own, so that an interrupt from the keyboard
// reaches only the parent, which then stops its children in order.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
