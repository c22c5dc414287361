package awserrors

import (
	"context"
	"errors"
	"net"
	"unicode/utf8"
)

// maxBrief is the length to which Brief cuts a text that has no error code.
const maxBrief = 120

// Brief is an error in a few words, without what differs between two attempts: the code of AWS, what there is in place of an answer, or
// the beginning of the text of another error.
func Brief(err error) string {
	var network net.Error
	switch code := Code(err); {
	case err == nil:
		return ""
	case code != "":
		return code
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "no answer"
	case errors.As(err, &network):
		return "no connection"
	}
	text := WithoutRequestIDs(err).Error()
	if len(text) > maxBrief {
		text = text[:maxBrief]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
		text += "..."
	}
	return text
}
