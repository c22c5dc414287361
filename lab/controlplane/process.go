package controlplane

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

// grace is how long a component may take to end in order before it is killed.
const grace = 10 * time.Second

// A process is a running component. It ends with this process, however this one ends: its standard
// input is a pipe that only this process holds open, and on Linux the kernel kills it as well.
type process struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	done    chan struct{} // closed when it has ended
	err     error         // how it ended; to be read after done
}

// startProcess executes a component, its output appended to the log file.
func startProcess(executable, name string, args []string, logPath string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	defer log.Close()
	lifeline, held, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("lifeline of %s: %w", name, err)
	}
	defer lifeline.Close()

	p := &process{name: name, logPath: logPath, done: make(chan struct{})}
	p.cmd = exec.Command(executable, append([]string{"component", name, "--"}, args...)...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = lifeline, log, log
	p.cmd.SysProcAttr = childAttributes()

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
		return nil, fmt.Errorf("execute %s: %w", name, err)
	}
	return p, nil
}

// stop ends the process: politely, and by force after the grace period or when ctx ends.
func (p *process) stop(ctx context.Context) error {
	if p.ended() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// death describes a process that has ended though it should not have, with its last words.
func (p *process) death() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended (%s); %s", p.name, how, p.lastWords())
}

// lastWords are the last lines of the log, for an error message.
func (p *process) lastWords() string {
	const lines = 15
	text, err := tail(p.logPath, lines)
	if err != nil {
		return fmt.Sprintf("its log cannot be read: %v", err)
	}
	return fmt.Sprintf("last lines of %s:\n%s", p.logPath, text)
}

// tail returns the last n lines of a file, of its last 16 KiB at most.
func tail(path string, n int) (string, error) {
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
