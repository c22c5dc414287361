// Package process runs child processes that never outlive this process, even if it is killed by SIGKILL.
//
// The standard input of each child is a pipe that only this process holds open. A child that reads it sees its end on
// every system; on Linux the kernel also kills the child.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is how long a program may take to exit after SIGTERM before it is killed. etcd and the API server need 1
// to 3 s.
const stopTimeout = 10 * time.Second

// Command states what to run.
type Command struct {
	// Name is the program's name in errors.
	Name string
	Path string
	Args []string
	// Env is the whole environment; nil means that of this process.
	Env []string
	// Log is the file to which its output is appended.
	Log string
}

// Process is a child process.
type Process struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	done    chan struct{} // closed after the exit
	err     error         // of the exit; read it after done
}

// Start executes a program.
func Start(c Command) (*Process, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", c.Name, err)
	}
	defer log.Close()
	lifeline, held, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("lifeline of %s: %w", c.Name, err)
	}
	defer lifeline.Close()

	p := &Process{name: c.Name, logPath: c.Log, done: make(chan struct{})}
	p.cmd = exec.Command(c.Path, c.Args...)
	p.cmd.Env = c.Env
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = lifeline, log, log
	p.cmd.SysProcAttr = attributes()

	started := make(chan error)
	go func() {
		// Linux ties the parent-death signal to the thread that started the child, not to the process:
		// this thread must exist as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer held.Close()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("execute %s: %w", c.Name, err)
	}
	return p, nil
}

// Stop sends SIGTERM, and SIGKILL after stopTimeout or when ctx is done. When it returns nil, the program has exited. It
// may be called again.
func (p *Process) Stop(ctx context.Context) error {
	if p.exited() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return p.Kill()
	}
}

// Kill sends SIGKILL and returns after the exit.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// PID is the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed after the program's exit.
func (p *Process) Done() <-chan struct{} { return p.done }

func (p *Process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ExitError describes an unexpected exit, with the last lines of the log. Call it after Done is closed.
func (p *Process) ExitError() error {
	return fmt.Errorf("%s exited (%s); %s", p.name, p.ExitStatus(), p.LogTail())
}

// ExitStatus returns the program's exit status or signal. Call it after Done is closed.
func (p *Process) ExitStatus() string {
	if p.err != nil {
		return p.err.Error()
	}
	return "exit status 0"
}

// LogTail returns the last lines of the log, for an error message.
func (p *Process) LogTail() string {
	const lines = 15
	text, err := Tail(p.logPath, lines)
	if err != nil {
		return fmt.Sprintf("cannot read its log: %v", err)
	}
	return fmt.Sprintf("last lines of %s:\n%s", p.logPath, text)
}

// Tail returns the last n lines of a file, of its last 16 KiB at most.
func Tail(path string, n int) (string, error) {
	const window = 16 << 10
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-window), window))
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n"), nil
}
