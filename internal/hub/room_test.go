package hub_test

import (
	"context"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func TestARoomIsSharedAndGivenBack(t *testing.T) {
	room := hub.NewRoom(16 << 20)
	first, leaveFirst := room.Enter(context.Background())
	second, leaveSecond := room.Enter(context.Background())
	defer leaveSecond()
	if err := hub.Reserve(first, 3<<20); err != nil {
		t.Fatal(err)
	}
	if err := hub.Reserve(second, 2<<20); hub.KindOf(err) != hub.Unavailable {
		t.Errorf("beyond what is left: %v", err)
	}
	if err := hub.Reserve(second, 1000); err != nil {
		t.Errorf("something small: %v", err)
	}
	if err := hub.Reserve(context.Background(), 1<<30); err != nil {
		t.Errorf("without a room: %v", err)
	}
	leaveFirst()
	leaveFirst() // once is enough
	if err := hub.Reserve(second, 4<<20); err != nil {
		t.Errorf("after the first has left: %v", err)
	}
	if err := hub.Reserve(second, 1<<20); hub.KindOf(err) != hub.Unavailable {
		t.Errorf("what was given back twice: %v", err)
	}
	hub.GiveBack(second)
	if err := hub.Reserve(second, 4<<20); err != nil {
		t.Errorf("after it gave back what it had: %v", err)
	}
}
