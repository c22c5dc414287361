package recorder

import (
	"math/rand/v2"
	"os"
	"testing"
)

// sample is a small valid recording.
func sample(t testing.TB) []byte {
	t.Helper()
	cfg := testConfig(t, MinSize)
	r, w := newTestRecorder(t, cfg), newTestWorld(1, 4, 1)
	for range 3 {
		id, _ := w.pass(r)
		r.Step(Step{Decision: id + "-0", What: StepCreated})
		r.settle()
		w.change()
	}
	r.Close()
	data, err := os.ReadFile(cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// readAll reads everything of a recording, as the commands do. It must not panic, whatever the file holds.
func readAll(data []byte) (passes int) {
	rec, err := read(&memory{data: data}, int64(len(data)))
	if err != nil {
		return 0
	}
	defer rec.Close()
	_, _ = rec.Decisions(Selection{})
	_ = rec.Passes(Range{}, func(*PassRecord) error {
		passes++
		return nil
	})
	return passes
}

func TestDamagedRecordingsAreReadAsFarAsPossible(t *testing.T) {
	whole := sample(t)
	if got := readAll(whole); got != 3 {
		t.Fatalf("%d passes, want 3", got)
	}
	draw := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		data := append([]byte{}, whole...)
		for range 1 + draw.IntN(8) {
			data[draw.IntN(len(data))] ^= 1 << draw.IntN(8)
		}
		if got := readAll(data[:draw.IntN(len(data)+1)]); got > 3 {
			t.Fatalf("%d passes of 3", got)
		}
	}
}

// FuzzRecording reads files that may be anything.
func FuzzRecording(f *testing.F) {
	f.Add(sample(f))
	f.Add([]byte(fileMagic))
	f.Fuzz(func(_ *testing.T, data []byte) { readAll(data) })
}

// FuzzLines reads recordings with valid frames with a text that may be anything.
func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"pass":{"id":"p-1","kind":"provisioning","now":"2026-08-21T12:00:00Z"}}` + "\n" +
		`{"object":{"kind":"Pod","uid":"u","object":{"metadata":{"name":"x"}}}}`))
	f.Add([]byte(`{"pass":{}}` + "\n" + `{"pools":[{"name":"x","list":"y"}]}` + "\n" + `{"list":{"hash":"y","types":["z"]}}`))
	f.Add([]byte(`{"buffers":[{"buffer":{}}]}`))
	e, err := newEncoder()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m := &memory{}
		ring, err := openRing(m, 0, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if err := ring.append(&frame{kind: kindKeyframe}, e.zstd.EncodeAll(text, nil)); err != nil {
			t.Fatal(err)
		}
		readAll(m.data)
	})
}

func TestABombIsNotRead(t *testing.T) {
	e, err := newEncoder()
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{}
	ring, err := openRing(m, 0, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	bomb := e.zstd.EncodeAll(make([]byte, 1<<28), nil) // a quarter of a gigabyte of zeros, in some kilobytes
	for _, kind := range []frameKind{kindKeyframe, kindDecisions} {
		if err := ring.append(&frame{kind: kind}, bomb); err != nil {
			t.Fatal(err)
		}
	}
	if allocated := testing.AllocsPerRun(1, func() { readAll(m.data) }); allocated > 100_000 {
		t.Errorf("%v allocations", allocated)
	}
}
