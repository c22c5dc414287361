package protocol

import (
	"net/http"
	"net/url"
	"strings"
)

// signature is the caller and service that a request claims in its signature; nothing is verified here.
type signature struct {
	accessKeyID string
	token       string
	region      string
	service     string
	presigned   bool
}

// signedParams are the query parameters of a presigned URL.
var signedParams = []string{
	"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Security-Token", "X-Amz-Signature", "X-Amz-SignedHeaders",
}

// parseSignature reads a SigV4 Authorization header, or else the credential of a presigned URL.
func parseSignature(r *http.Request, query url.Values) (signature, bool) {
	if rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256"); ok {
		for part := range strings.SplitSeq(rest, ",") {
			if scope, ok := strings.CutPrefix(strings.TrimSpace(part), "Credential="); ok {
				s, ok := parseScope(scope)
				s.token = r.Header.Get("X-Amz-Security-Token")
				return s, ok
			}
		}
		return signature{}, false
	}
	if scope := query.Get("X-Amz-Credential"); scope != "" {
		s, ok := parseScope(scope)
		s.token, s.presigned = query.Get("X-Amz-Security-Token"), true
		return s, ok
	}
	return signature{}, false
}

// parseScope reads KEY/DATE/REGION/SERVICE/aws4_request.
func parseScope(scope string) (signature, bool) {
	parts := strings.Split(scope, "/")
	if len(parts) != 5 || parts[4] != "aws4_request" {
		return signature{}, false
	}
	return signature{accessKeyID: parts[0], region: parts[2], service: parts[3]}, true
}
