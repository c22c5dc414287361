package recorder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// torn is storage of a process that is killed while it writes: the first bytes of the last write arrive, and nothing later.
type torn struct {
	memory
	// left is how many bytes arrive until then; negative for all.
	left int
}

var errKilled = errors.New("killed")

func (t *torn) WriteAt(p []byte, off int64) (int, error) {
	if t.left >= 0 && len(p) > t.left {
		n, _ := t.memory.WriteAt(p[:t.left], off)
		t.left = 0
		return n, errKilled
	}
	if t.left >= 0 {
		t.left -= len(p)
	}
	return t.memory.WriteAt(p, off)
}

// numbers are the frames that have a valid payload.
func numbers(t *testing.T, data []byte) (out []uint64) {
	t.Helper()
	file := &memory{data: data}
	frames, err := scan(file, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range frames {
		if _, err := payload(file, f); err == nil {
			out = append(out, f.seq)
		}
	}
	return out
}

// A process is killed at each byte of what it writes. The next one finds all frames before but those that were being overwritten, and
// continues behind them. The frames are such that the ring is written over several times.
func TestAWriteThatIsCutOffLosesNothingElse(t *testing.T) {
	const size, frames = 4096, 40
	body := func(n uint64) string { return strings.Repeat(fmt.Sprint(n%10), 100+int(n*37%300)) }
	total := 0
	for n := range uint64(frames) {
		total += frameHeaderSize + len(body(n))
	}
	for killed := len(fileMagic); killed < total; killed += 7 {
		disk := &torn{left: killed}
		r, err := openRing(disk, 0, size)
		if err != nil {
			t.Fatal(err)
		}
		torn := uint64(1)
		for torn < frames && r.append(&frame{kind: kindSteps}, []byte(body(torn))) == nil {
			torn++
		}
		disk.left = -1
		before := numbers(t, disk.data)
		if torn > 1 && !slices.Contains(before, torn-1) {
			t.Fatalf("killed after %d bytes, while frame %d was written: %v are left", killed, torn, before)
		}
		for i := 1; i < len(before); i++ {
			if before[i] != before[i-1]+1 {
				t.Fatalf("killed after %d bytes: %v are left, with a gap", killed, before)
			}
		}
		next, err := openRing(disk, int64(len(disk.data)), size)
		if err != nil {
			t.Fatal(err)
		}
		if err := next.append(&frame{kind: kindSteps}, []byte("the next process")); err != nil {
			t.Fatal(err)
		}
		after := numbers(t, disk.data)
		if len(after) == 0 || after[len(after)-1] != next.seq-1 || len(disk.data) > size {
			t.Fatalf("killed after %d bytes: the next process has %v of %d bytes", killed, after, len(disk.data))
		}
		if torn > 1 && len(after) > 1 && after[len(after)-2] < torn-1 {
			t.Fatalf("killed after %d bytes: the next process has overwritten frame %d: %v", killed, torn-1, after)
		}
	}
}

func TestOfTooManyFramesTheOldestAreLeftOut(t *testing.T) {
	m := &memory{}
	r, err := openRing(m, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := r.append(&frame{kind: kindSteps}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, most := range []int{1, 7, 50, 99, 100, 1000} {
		frames, err := scanNewest(m, int64(len(m.data)), most)
		if err != nil || len(frames) != min(most, 100) || frames[len(frames)-1].seq != 100 || frames[0].seq != uint64(100-len(frames)+1) {
			t.Errorf("at most %d: %d frames, %v", most, len(frames), err)
		}
	}
}

// Whatever is at the path, passes are recorded: there, or in memory.
func TestARecorderStartsWhateverIsAtItsPath(t *testing.T) {
	other := strings.Replace(fileMagic, "version 1", "version 2", 1)
	for name, c := range map[string]struct {
		make   func(path string) error
		inFile bool
		aside  bool
	}{
		"nothing":                {func(string) error { return nil }, true, false},
		"no directory":           {func(path string) error { return os.Remove(filepath.Dir(path)) }, true, false},
		"an empty file":          {func(path string) error { return os.WriteFile(path, nil, 0o600) }, true, false},
		"half a first line":      {func(path string) error { return os.WriteFile(path, []byte(fileMagic[:10]), 0o600) }, true, true},
		"another format":         {func(path string) error { return os.WriteFile(path, []byte(other), 0o600) }, true, true},
		"something else":         {func(path string) error { return os.WriteFile(path, make([]byte, 3<<20), 0o600) }, true, true},
		"only the first line":    {func(path string) error { return os.WriteFile(path, []byte(fileMagic), 0o600) }, true, false},
		"a recording, then junk": {func(path string) error { return os.WriteFile(path, append(sample(t), "junk junk junk"...), 0o600) }, true, false},
		"half a recording": {func(path string) error {
			data := sample(t)
			return os.WriteFile(path, data[:len(data)/2], 0o600)
		}, true, false},
		"a directory": {func(path string) error { return os.Mkdir(path, 0o700) }, false, false},
		"a file where its directory should be": {func(path string) error {
			return errors.Join(os.Remove(filepath.Dir(path)), os.WriteFile(filepath.Dir(path), nil, 0o600))
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t, MinSize)
			cfg.Path = filepath.Join(t.TempDir(), "sub", "decisions.rec")
			if err := errors.Join(os.Mkdir(filepath.Dir(cfg.Path), 0o700), c.make(cfg.Path)); err != nil {
				t.Fatal(err)
			}
			r, w := newTestRecorder(t, cfg), newTestWorld(1, 5, 1)
			id, plan := w.pass(r)
			r.settle()
			_, inMemory := r.writer.ring.file.(*memory)
			r.Close()
			if inMemory == c.inFile {
				t.Errorf("recorded in memory: %v", inMemory)
			}
			if c.inFile {
				if got := replayed(t, cfg.Path); got[id] != plan {
					t.Errorf("the pass is not in the file: %v", got)
				}
			}
			if _, err := os.Stat(cfg.Path + ".damaged"); c.aside != (err == nil) {
				t.Errorf("put aside: %v", err)
			}
		})
	}
}
