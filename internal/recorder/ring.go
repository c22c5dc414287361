package recorder

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// storage is a file, or memory.
type storage interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// errTooLarge is the error of a frame that the ring has no room for.
var errTooLarge = errors.New("the frame is larger than the recording may be")

// ring is a file of frames, of bounded size. A frame is written behind the last one, or at the beginning where it would exceed
// the size, over the oldest. Invariant: the file is never larger than size, and no valid frame is older than an overwritten one.
// A frame that overlaps a newer one is invalid, since its header or its checksum is.
type ring struct {
	file storage
	size int64
	// next is where the next frame is written, seq its number.
	next int64
	seq  uint64
}

// openRing continues the frames in file, or begins with an empty file.
func openRing(file storage, fileSize, size int64) (*ring, error) {
	r := &ring{file: file, size: size, next: int64(len(fileMagic)), seq: 1}
	if fileSize == 0 {
		_, err := file.WriteAt([]byte(fileMagic), 0)
		return r, err
	}
	frames, err := scan(file, min(fileSize, size))
	if err != nil {
		return nil, err
	}
	if len(frames) > 0 {
		last := frames[len(frames)-1]
		r.next, r.seq = last.offset+last.length(), last.seq+1
	}
	return r, nil
}

// append writes a frame, and sets the fields of f that depend on its place and its payload. After an error nothing has changed but
// that frames which were the oldest may be lost.
func (r *ring) append(f *frame, payload []byte) error {
	f.size, f.sum, f.seq = uint32(len(payload)), crc32.Checksum(payload, castagnoli), r.seq
	if len(payload) > maxPayload || int64(len(fileMagic))+f.length() > r.size {
		return errTooLarge
	}
	at := r.next
	if at+f.length() > r.size {
		if err := r.fill(at); err != nil {
			return err
		}
		at = int64(len(fileMagic))
	}
	f.offset = at
	buffer := make([]byte, f.length())
	f.encode(buffer)
	copy(buffer[frameHeaderSize:], payload)
	if _, err := r.file.WriteAt(buffer, at); err != nil {
		return err
	}
	r.next, r.seq = at+f.length(), r.seq+1
	return nil
}

// fill marks the rest of the file as unused: what it holds is older than what the next round overwrites.
func (r *ring) fill(at int64) error {
	rest := r.size - at
	if rest < frameHeaderSize {
		return nil
	}
	// Its number is that of the frame that comes next, so that no valid frame follows it in order.
	filler := frame{kind: kindFiller, size: uint32(min(rest-frameHeaderSize, maxPayload)), seq: r.seq}
	var header [frameHeaderSize]byte
	filler.encode(header[:])
	_, err := r.file.WriteAt(header[:], at)
	return err
}

// maxFrames bounds the memory for the index of a recording: 72 bytes a frame. Of more frames, the oldest are left out.
const maxFrames = 2_000_000

// errDamaged is the error of a file that is no recording.
var errDamaged = errors.New("this is no recording that this version of Dovetail can read, or its beginning is damaged")

// errOtherFormat is the error of a recording that another version of Dovetail has made.
var errOtherFormat = fmt.Errorf("%w: its format is that of another version", errDamaged)

// scan lists the valid headers in a file, by their number. Where a header is invalid, it searches on for the next one. It does
// not check payloads.
func scan(file io.ReaderAt, size int64) ([]frame, error) { return scanNewest(file, size, maxFrames) }

func scanNewest(file io.ReaderAt, size int64, most int) ([]frame, error) {
	window := &headerWindow{file: file, size: size}
	if size < int64(len(fileMagic)) {
		return nil, errDamaged
	}
	magic, err := window.at(0, len(fileMagic))
	if err != nil {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	if string(magic) != fileMagic {
		if bytes.HasPrefix(magic, []byte(magicPrefix)) {
			return nil, errOtherFormat
		}
		return nil, errDamaged
	}
	var frames []frame
	for at := int64(len(fileMagic)); at+frameHeaderSize <= size; {
		header, err := window.at(at, frameHeaderSize)
		if err != nil {
			return nil, fmt.Errorf("read the recording: %w", err)
		}
		f, valid := decodeFrame(header)
		if !valid {
			at += frameAlign
			continue
		}
		f.offset = at
		at += f.length()
		if f.kind == kindFiller || at > size {
			continue
		}
		if frames = append(frames, f); len(frames) >= 2*most {
			frames = newest(frames, most)
		}
	}
	return newest(frames, most), nil
}

// newest sorts frames by their number, and returns the last ones.
func newest(frames []frame, most int) []frame {
	slices.SortFunc(frames, func(a, b frame) int { return cmp.Compare(a.seq, b.seq) })
	return slices.Delete(frames, 0, max(0, len(frames)-most))
}

// headerWindow reads headers in blocks.
type headerWindow struct {
	file   io.ReaderAt
	size   int64
	start  int64
	block  []byte
	buffer [1 << 16]byte
}

func (w *headerWindow) at(offset int64, n int) ([]byte, error) {
	if offset < w.start || offset+int64(n) > w.start+int64(len(w.block)) {
		got, err := w.file.ReadAt(w.buffer[:min(int64(len(w.buffer)), w.size-offset)], offset)
		if got < n {
			return nil, cmp.Or(err, io.ErrUnexpectedEOF)
		}
		w.start, w.block = offset, w.buffer[:got]
	}
	return w.block[offset-w.start:][:n], nil
}

// payload reads and checks the payload of a frame.
func payload(file io.ReaderAt, f frame) ([]byte, error) {
	data := make([]byte, f.size)
	if _, err := file.ReadAt(data, f.offset+frameHeaderSize); err != nil {
		return nil, fmt.Errorf("read frame %d: %w", f.seq, err)
	}
	if crc32.Checksum(data, castagnoli) != f.sum {
		return nil, fmt.Errorf("frame %d is damaged", f.seq)
	}
	return data, nil
}

// memory is storage without a file.
type memory struct{ data []byte }

// ReadAt implements io.ReaderAt.
func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(m.data)) {
		return 0, io.EOF
	}
	n := copy(p, m.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements io.WriterAt.
func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if missing := off + int64(len(p)) - int64(len(m.data)); missing > 0 {
		m.data = append(m.data, make([]byte, missing)...)
	}
	return copy(m.data[off:], p), nil
}

// Close implements io.Closer.
func (m *memory) Close() error { return nil }
