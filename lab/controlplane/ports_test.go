package controlplane

import (
	"context"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReservedPort(t *testing.T) {
	port, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := port.release(); err != nil {
			t.Error(err)
		}
	}()
	if l, err := net.Listen("tcp4", port.address()); err == nil {
		l.Close()
		t.Error("a stranger could listen on a reserved port")
	}
	if conn, err := net.Dial("tcp4", port.address()); err == nil {
		conn.Close()
		t.Error("a reserved port that nobody listens on accepts connections")
	}
	sharing := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if outer := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}); outer != nil {
			return outer
		}
		return err
	}}
	for range 2 { // a component that is started again takes the port again
		l, err := sharing.Listen(context.Background(), "tcp4", port.address())
		if err != nil {
			t.Fatalf("a component cannot listen on its port: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
