// Package process runs programs whose lives are tied to this process: however this one ends, even
// by SIGKILL, they do.
//
// The standard input of each is a pipe that only this process holds open, so a program that reads
// it learns of the end everywhere; on Linux the kernel kills it as well.
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

// stopTimeout is how long a program may take to end in order before it is killed.
const stopTimeout = 10 * time.Second

// Command says what to run.
type Command struct {
	// Name is what errors call it.
	Name string
	Path string
	Args []string
	// Env is the whole environment; nil means that of this process.
	Env []string
	// Log is the file to which its output is appended.
	Log string
}

// Process is a program that was started.
type Process struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	done    chan struct{} // closed when it has ended
	err     error         // how it ended; to be read after done
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
		// Linux ties the death signal to the thread that started the child, not to the process:
		// this thread has to last as long as the child does.
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

// Stop ends the program: politely, and by force after ten seconds or when ctx ends. When it returns
// nil, the program is gone. It may be called again.
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

// Kill ends the program at once, without a chance to tidy up, and returns when it is gone.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

func (p *Process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ExitError describes a program that has ended though it should not have, with its last words. It is to
// be called after Done is closed.
func (p *Process) ExitError() error {
	return fmt.Errorf("%s ended (%s); %s", p.name, p.ExitStatus(), p.LogTail())
}

// ExitStatus is how a program has ended: its exit status or the signal. It is to be called after Done is closed.
func (p *Process) ExitStatus() string {
	if p.err != nil {
		return p.err.Error()
	}
	return "exit status 0"
}

// LogTail are the last lines of the log, for an error message.
func (p *Process) LogTail() string {
	const lines = 15
	text, err := Tail(p.logPath, lines)
	if err != nil {
		return fmt.Sprintf("its log cannot be read: %v", err)
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
