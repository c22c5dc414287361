package recorder

import (
	"fmt"
	"io"
	"time"
)

// ExportInfo is what an export holds.
type ExportInfo struct {
	Frames int   `json:"frames"`
	Bytes  int64 `json:"bytes"`
	// From is the time of the first frame: that of the keyframe before the time that was requested.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Export writes the frames since a time as a recording, with those before that they depend on. Damaged frames are left out.
func (r *Recording) Export(out io.Writer, since time.Time) (ExportInfo, error) {
	first := len(r.frames)
	keyframe := -1
	for i := range r.frames {
		if r.frames[i].kind == kindKeyframe {
			keyframe = i
		}
		if !r.frames[i].time().Before(since) {
			first = i
			break
		}
	}
	if keyframe >= 0 && keyframe < first {
		first = keyframe
	}
	info := ExportInfo{Bytes: int64(len(fileMagic))}
	if _, err := io.WriteString(out, fileMagic); err != nil {
		return info, err
	}
	for _, f := range r.frames[first:] {
		data, err := payload(r.file, f)
		if err != nil {
			continue
		}
		buffer := make([]byte, f.length())
		f.encode(buffer)
		copy(buffer[frameHeaderSize:], data)
		if _, err := out.Write(buffer); err != nil {
			return info, fmt.Errorf("write the export: %w", err)
		}
		if at := f.time(); info.Frames == 0 || at.Before(info.From) {
			info.From = at
		}
		if at := f.time(); at.After(info.To) {
			info.To = at
		}
		info.Frames++
		info.Bytes += f.length()
	}
	return info, nil
}
