package recorder

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

// frameKind is what a frame holds.
type frameKind uint8

const (
	// kindKeyframe is a part of a pass with everything that it saw, kindDelta with the difference from the frame before.
	kindKeyframe frameKind = 1
	kindDelta    frameKind = 2
	// kindDecisions are decisions, kindSteps the steps of their outcome.
	kindDecisions frameKind = 3
	kindSteps     frameKind = 4
	// kindFiller is the unused rest before the end of the file. Its content is undefined.
	kindFiller frameKind = 5
	// kindDeletions are records of what was deleted.
	kindDeletions frameKind = 6
)

const (
	// fileMagic is how a recording begins. Its length is a multiple of frameAlign.
	fileMagic   = magicPrefix + "1\n\n\n"
	magicPrefix = "dovetail recording, version "
	// frameMagic begins each frame.
	frameMagic = 0x52564f44
	// frameHeaderSize is the size of a header in bytes, frameAlign the alignment of frames in the file.
	frameHeaderSize = 56
	frameAlign      = 8
	// maxPayload is the largest payload of a frame in bytes. A keyframe of 5,000 nodes with 100,000 pods has about 10 MiB.
	maxPayload = 1 << 28
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is the header of a frame.
type frame struct {
	kind frameKind
	// size of the payload in bytes, and its checksum.
	size, sum uint32
	// seq counts frames. Frames with state name the keyframe that they depend on, and the frame with state before them.
	seq, base, prev uint64
	// pass identifies the pass that the frame is of, as a checksum of its ID. part counts the frames of the pass; only the first
	// has state.
	pass uint32
	part uint8
	// at is the time of what the frame holds, in nanoseconds since 1970.
	at int64
	// offset in the file; not in the header.
	offset int64
}

func (f *frame) time() time.Time { return time.Unix(0, f.at).UTC() }

// length is the size of the frame in the file.
func (f *frame) length() int64 { return aligned(frameHeaderSize + int64(f.size)) }

func aligned(n int64) int64 { return (n + frameAlign - 1) / frameAlign * frameAlign }

// hasState reports whether the frame holds what a pass saw.
func (f *frame) hasState() bool { return f.kind == kindKeyframe || f.kind == kindDelta && f.part == 0 }

// encode writes the header to the beginning of b.
func (f *frame) encode(b []byte) {
	clear(b[:frameHeaderSize])
	e := binary.LittleEndian
	e.PutUint32(b, frameMagic)
	b[4], b[5] = byte(f.kind), f.part
	e.PutUint32(b[8:], f.size)
	e.PutUint32(b[12:], f.sum)
	e.PutUint64(b[16:], f.seq)
	e.PutUint64(b[24:], f.base)
	e.PutUint64(b[32:], f.prev)
	e.PutUint64(b[40:], uint64(f.at))
	e.PutUint32(b[48:], f.pass)
	e.PutUint32(b[52:], crc32.Checksum(b[:52], castagnoli))
}

// decodeFrame reads a header; false if b does not begin with a valid one.
func decodeFrame(b []byte) (frame, bool) {
	e := binary.LittleEndian
	if len(b) < frameHeaderSize || e.Uint32(b) != frameMagic || e.Uint32(b[52:]) != crc32.Checksum(b[:52], castagnoli) {
		return frame{}, false
	}
	f := frame{
		kind: frameKind(b[4]), size: e.Uint32(b[8:]), sum: e.Uint32(b[12:]), seq: e.Uint64(b[16:]), base: e.Uint64(b[24:]),
		prev: e.Uint64(b[32:]), at: int64(e.Uint64(b[40:])), pass: e.Uint32(b[48:]), part: b[5],
	}
	return f, f.size <= maxPayload && f.kind >= kindKeyframe && f.kind <= kindDeletions
}
